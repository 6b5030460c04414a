"""More ordinary programs for ``bench programs``, with records of other shapes.

They were written after the engine's fast ways, to find what those leave out.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.ordinary_programs import (
    Emit,
    OrdinaryProgram,
    Records,
    by_time,
    greatest,
    json_events,
    sorted_records,
    users,
)
from headgate.api.datastream import DataStream
from headgate.api.types.types import Types
from headgate.functions.assigners import SlidingEventTimeWindows
from headgate.functions.context import RuntimeContext
from headgate.functions.function import KeyedProcessFunction, MapFunction
from headgate.functions.state import MapStateDescriptor, ValueStateDescriptor
from headgate.functions.time import Time
from headgate.functions.watermarks import TimestampAssigner
from headgate.functions.window_functions import AggregateFunction

# Lines of CSV, named tuples


class Trade(NamedTuple):
    user: str
    quantity: int
    price: float
    at: int


def trade_lines(count: int, task: int) -> Records:
    return [
        f"{user},{rng.randrange(100)},{rng.random() * 100:.2f},{at}"
        for rng, at, user in users(count, task)
    ]


def parse_trade(line: str) -> Trade:
    parts = line.split(",")
    return Trade(parts[0], int(parts[1]), float(parts[2]), int(parts[3]))


def user_of_trade(trade: Trade) -> str:
    return trade.user


class Positions(KeyedProcessFunction[str, Trade, Trade]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Trade, ctx: Any) -> Iterator[Trade]:
        before = self.last.value()
        if before is not None:
            value = value._replace(quantity=value.quantity + before.quantity)
        self.last.update(value)
        yield value


def trades(lines: DataStream) -> DataStream:
    return lines.map(parse_trade).key_by(user_of_trade).process(Positions())


def trades_plain(lines: Records, emit: Emit) -> None:
    last: dict[str, Trade] = {}
    for line in lines:
        trade = parse_trade(line)
        before = last.get(trade.user)
        if before is not None:
            trade = trade._replace(quantity=trade.quantity + before.quantity)
        last[trade.user] = trade
        emit(trade)


def trades_summary(found: Records) -> object:
    return greatest((trade.user, trade.quantity) for trade in found)


# Orders as nested dicts, a flat map that returns a list


def order_lines(count: int, task: int) -> Records:
    return [
        msgspec.json.encode(
            {
                "user": user,
                "items": [
                    {"sku": f"sku-{rng.randrange(500)}", "quantity": rng.randrange(9)}
                    for _ in range(3)
                ],
            }
        )
        for rng, _, user in users(count, task)
    ]


def items_of_order(order: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**item, "user": order["user"]} for item in order["items"]]


def sku_of_item(item: dict[str, Any]) -> str:
    sku: str = item["sku"]
    return sku


class QuantityOfSku(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        total = (self.total.value() or 0) + value["quantity"]
        self.total.update(total)
        yield {**value, "total": total}


def order_items(lines: DataStream) -> DataStream:
    items = lines.map(msgspec.json.decode).flat_map(items_of_order)
    return items.key_by(sku_of_item).process(QuantityOfSku())


def order_items_plain(lines: Records, emit: Emit) -> None:
    totals: dict[str, int] = {}
    for line in lines:
        for item in items_of_order(msgspec.json.decode(line)):
            sku = sku_of_item(item)
            total = totals[sku] = totals.get(sku, 0) + item["quantity"]
            emit({**item, "total": total})


def order_items_summary(found: Records) -> object:
    return greatest((item["sku"], item["total"]) for item in found)


# Sliding windows over dicts, a dict as accumulator


def payments(count: int, task: int) -> Records:
    return [
        {"kind": rng.choice(["card", "cash", "wire"]), "cents": rng.randrange(9999), "at": at}
        for rng, at, _ in users(count, task)
    ]


class TimeOfPayment(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        at: int = value["at"]
        return at


def kind_of_payment(payment: dict[str, Any]) -> str:
    kind: str = payment["kind"]
    return kind


class MeanOfPayments(AggregateFunction[dict[str, Any], dict[str, int], dict[str, Any]]):
    def create_accumulator(self) -> dict[str, int]:
        return {"count": 0, "cents": 0}

    def add(self, value: dict[str, Any], accumulator: dict[str, int]) -> dict[str, int]:
        accumulator["count"] += 1
        accumulator["cents"] += value["cents"]
        return accumulator

    def get_result(self, accumulator: dict[str, int]) -> dict[str, Any]:
        return {"mean": accumulator["cents"] / accumulator["count"], **accumulator}

    def merge(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {"count": a["count"] + b["count"], "cents": a["cents"] + b["cents"]}


SIZE_MS: Final = 60_000
SLIDE_MS: Final = 20_000


def moving_means(records: DataStream) -> DataStream:
    keyed = by_time(records, TimeOfPayment()).key_by(kind_of_payment)
    size, slide = Time.milliseconds(SIZE_MS), Time.milliseconds(SLIDE_MS)
    return keyed.window(SlidingEventTimeWindows.of(size, slide)).aggregate(MeanOfPayments())


def moving_means_plain(records: Records, emit: Emit) -> None:
    windows: dict[Any, dict[str, int]] = {}
    means, assigner = MeanOfPayments(), TimeOfPayment()
    for payment in records:
        at = assigner.extract_timestamp(payment, 0)
        for start in range(at - at % SLIDE_MS, at - SIZE_MS, -SLIDE_MS):
            place = kind_of_payment(payment), start
            windows[place] = means.add(payment, windows.get(place) or means.create_accumulator())
    for accumulator in windows.values():
        emit(means.get_result(accumulator))


# Structs, a map state


class Sold(msgspec.Struct):
    user: str
    country: str
    cents: int


class DecodeSold(MapFunction[str, Sold]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.decoder = msgspec.json.Decoder(Sold)

    def map(self, value: str) -> Sold:
        return self.decoder.decode(value)


def is_dear(sold: Sold) -> bool:
    return sold.cents > 2000


def user_of_sold(sold: Sold) -> str:
    return sold.user


class CentsByCountry(KeyedProcessFunction[str, Sold, tuple[str, str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("cents", Types.STRING(), Types.LONG())
        self.cents = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Sold, ctx: Any) -> Iterator[tuple[str, str, int]]:
        cents = (self.cents.get(value.country) or 0) + value.cents
        self.cents.put(value.country, cents)
        yield value.user, value.country, cents


def structs(lines: DataStream) -> DataStream:
    dear = lines.map(DecodeSold()).filter(is_dear)
    return dear.key_by(user_of_sold).process(CentsByCountry())


def structs_plain(lines: Records, emit: Emit) -> None:
    decode = msgspec.json.Decoder(Sold).decode
    by_user: dict[str, dict[str, int]] = defaultdict(dict)
    for line in lines:
        sold = decode(line)
        if is_dear(sold):
            of_user = by_user[user_of_sold(sold)]
            cents = of_user[sold.country] = (of_user.get(sold.country) or 0) + sold.cents
            emit((sold.user, sold.country, cents))


def structs_summary(found: Records) -> object:
    return greatest(((user, country), cents) for user, country, cents in found)


OTHER_SHAPES: Final[dict[str, OrdinaryProgram]] = {
    "trades": OrdinaryProgram(
        "lines of CSV, named tuples, a ValueState",
        *(trade_lines, trades, trades_plain, trades_summary, 600_000),
    ),
    "order-items": OrdinaryProgram(
        "nested JSON, a flat_map that returns a list of dicts, a ValueState",
        *(order_lines, order_items, order_items_plain, order_items_summary, 200_000),
    ),
    "moving-means": OrdinaryProgram(
        "dicts, a dict as accumulator of sliding windows",
        *(payments, moving_means, moving_means_plain, sorted_records, 400_000),
    ),
    "structs": OrdinaryProgram(
        "JSON to structs of msgspec, a MapState",
        *(json_events, structs, structs_plain, structs_summary, 600_000),
    ),
}
