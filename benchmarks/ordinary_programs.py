"""Programs as users write them, for ``bench programs``: each as a job and as a plain loop.

The loop calls the same functions where the job takes plain ones, and does by hand what a process
function does with state and timers. Both give the same records, but for their order.
"""

import heapq
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from headgate.api.datastream import DataStream
from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.functions.assigners import TumblingEventTimeWindows
from headgate.functions.context import RuntimeContext
from headgate.functions.function import KeyedCoProcessFunction, KeyedProcessFunction, MapFunction
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.functions.time import Duration, Time
from headgate.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headgate.functions.window_functions import AggregateFunction

Records = list[Any]
Emit = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class OrdinaryProgram:
    """A job, and the loop that does the same on one core."""

    about: str
    make: Callable[[int, int], Records]
    """So many input records, for the source task of this number; in the order of event time."""
    build: Callable[[DataStream], DataStream]
    plain: Callable[[Records, Emit], None]
    summary: Callable[[Records], object]
    """What does not depend on the order in which records of two sources meet."""
    records: int


def users(count: int, task: int) -> Iterator[tuple[random.Random, int, str]]:
    """Few users do much; two records of a task are 10 ms apart."""
    rng = random.Random(task)
    for number in range(count):
        yield rng, 1_700_000_000_000 + number * 10, f"user-{int(rng.paretovariate(0.6)) % 5000}"


def greatest(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        found[key] = max(found.get(key, value), value)
    return found


# JSON lines, a dict as state, JSON lines


def json_events(count: int, task: int) -> Records:
    return [
        json.dumps(
            {
                "id": f"{task}-{at}",
                "user": user,
                "type": rng.choice(["view", "click", "buy"]),
                "cents": rng.randrange(10_000),
                "country": rng.choice(["de", "fr", "us"]),
                "ts": at,
            }
        )
        for rng, at, user in users(count, task)
    ]


def parse_event(line: str) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return event


def is_interesting(event: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    return event is not None and event["type"] != "view"


def user_of_event(event: dict[str, Any]) -> str:
    user: str = event["user"]
    return user


def add_event(totals: dict[str, Any] | None, event: dict[str, Any]) -> dict[str, Any]:
    if totals is None:
        totals = {"events": 0, "cents": 0, "by_country": {}}
    totals["events"] += 1
    totals["cents"] += event["cents"]
    by_country = totals["by_country"]
    by_country[event["country"]] = by_country.get(event["country"], 0) + 1
    return totals


def line_of(event: dict[str, Any], totals: dict[str, Any]) -> dict[str, Any]:
    return {"user": event["user"], "events": totals["events"], "cents": totals["cents"]}


class TotalsOfUser(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_state(ValueStateDescriptor("totals"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        totals = add_event(self.totals.value(), value)
        self.totals.update(totals)
        yield line_of(value, totals)


def json_totals(lines: DataStream) -> DataStream:
    events = lines.map(parse_event).filter(is_interesting)
    return events.key_by(user_of_event).process(TotalsOfUser()).map(json.dumps)


def json_totals_plain(lines: Records, emit: Emit) -> None:
    state: dict[str, dict[str, Any]] = {}
    for line in lines:
        event = parse_event(line)
        if is_interesting(event):
            assert event is not None
            user = user_of_event(event)
            totals = state[user] = add_event(state.get(user), event)
            emit(json.dumps(line_of(event, totals)))


def json_totals_summary(lines: Records) -> object:
    return greatest((found["user"], found["events"]) for found in map(json.loads, lines))


# JSON to a dataclass, event time, a window


@dataclass(slots=True)
class Sale:
    user: str
    country: str
    cents: int
    at: int


def parse_sale(line: str) -> Sale:
    found = json.loads(line)
    return Sale(found["user"], found["country"], found["cents"], found["ts"])


class TimeOfSale(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        at: int = value.at
        return at


def market_of(sale: Sale) -> tuple[str, str]:
    return sale.country, sale.user[-1]


class SumOfSales(AggregateFunction[Sale, tuple[Any, int], tuple[Any, int]]):
    def create_accumulator(self) -> tuple[Any, int]:
        return None, 0

    def add(self, value: Sale, accumulator: tuple[Any, int]) -> tuple[Any, int]:
        return market_of(value), accumulator[1] + value.cents

    def get_result(self, accumulator: tuple[Any, int]) -> tuple[Any, int]:
        return accumulator

    def merge(self, a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return a[0] or b[0], a[1] + b[1]


def by_time(stream: DataStream, assigner: TimestampAssigner) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_days(1))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(assigner))


WINDOW_MS: Final = 10_000


def json_windows(lines: DataStream) -> DataStream:
    keyed = by_time(lines.map(parse_sale), TimeOfSale()).key_by(market_of)
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
    return windows.aggregate(SumOfSales())


def json_windows_plain(lines: Records, emit: Emit) -> None:
    windows: dict[Any, tuple[Any, int]] = {}
    sums, assigner = SumOfSales(), TimeOfSale()
    for line in lines:
        sale = parse_sale(line)
        at = assigner.extract_timestamp(sale, 0)
        place = market_of(sale), at - at % WINDOW_MS
        windows[place] = sums.add(sale, windows.get(place) or sums.create_accumulator())
    for accumulator in windows.values():
        emit(sums.get_result(accumulator))


# Dataclasses over two exchanges


@dataclass
class Visit:
    user: str
    page: str
    ms: int
    at: int


def visit_rows(count: int, task: int) -> Records:
    return [
        (user, f"page-{rng.randrange(20)}", rng.randrange(5000), at)
        for rng, at, user in users(count, task)
    ]


def make_visit(row: tuple[str, str, int, int]) -> Visit:
    return Visit(row[0], row[1], row[2], row[3])


def user_of(visit: Visit) -> str:
    return visit.user


def page_of(visited: tuple[str, int, int]) -> str:
    return visited[0]


class PagesOfUser(KeyedProcessFunction[str, Visit, tuple[str, int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("pages", Types.STRING(), Types.LONG())
        self.pages = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Visit, ctx: Any) -> Iterator[tuple[str, int, int]]:
        times = (self.pages.get(value.page) or 0) + 1
        self.pages.put(value.page, times)
        yield value.page, value.ms, times


class TimeOnPage(KeyedProcessFunction[str, tuple[str, int, int], tuple[str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: tuple[str, int, int], ctx: Any) -> Iterator[tuple[str, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def two_exchanges(rows: DataStream) -> DataStream:
    visited = rows.map(make_visit).key_by(user_of).process(PagesOfUser())
    return visited.key_by(page_of).process(TimeOnPage())


def two_exchanges_plain(rows: Records, emit: Emit) -> None:
    pages: dict[str, dict[str, int]] = defaultdict(dict)
    totals: dict[str, int] = {}
    for row in rows:
        visit = make_visit(row)
        of_user = pages[user_of(visit)]
        times = (of_user.get(visit.page) or 0) + 1
        of_user[visit.page] = times
        visited = visit.page, visit.ms, times
        page = page_of(visited)
        total = totals[page] = (totals.get(page) or 0) + visited[1]
        emit((page, total))


# Sessions, with a timer that every event moves

GAP_MS: Final = 30_000


class TimeOfVisit(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        at: int = value.at
        return at


class SessionsOfUser(KeyedProcessFunction[str, Visit, tuple[str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.session = runtime_context.get_state(ValueStateDescriptor("session"))

    def process_element(self, value: Visit, ctx: Any) -> None:
        timers = ctx.timer_service()
        visits, end = self.session.value() or (0, None)
        if end is not None:
            timers.delete_event_time_timer(end)
        end = max(end or 0, value.at + GAP_MS)
        timers.register_event_time_timer(end)
        self.session.update((visits + 1, end))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int]]:
        visits, _ = self.session.value() or (0, None)
        self.session.clear()
        yield ctx.get_current_key(), visits


def sessions(rows: DataStream) -> DataStream:
    visits = by_time(rows.map(make_visit), TimeOfVisit())
    return visits.key_by(user_of).process(SessionsOfUser())


def sessions_plain(rows: Records, emit: Emit) -> None:
    """Timers as the job has them: all fire at the end, in the order of time."""
    state: dict[str, tuple[int, int]] = {}
    timers: list[tuple[int, str]] = []
    assigner = TimeOfVisit()
    for row in rows:
        visit = make_visit(row)
        at, user = assigner.extract_timestamp(visit, 0), user_of(visit)
        visits, end = state.get(user) or (0, 0)
        end = max(end, at + GAP_MS)
        heapq.heappush(timers, (end, user))
        state[user] = visits + 1, end
    while timers:
        end, user = heapq.heappop(timers)
        if user in state and state[user][1] == end:
            emit((user, state.pop(user)[0]))


# Log lines, a regular expression, flat map

_LOG: Final = re.compile(r'(\S+) \S+ "(\w+) (\S+)" (\d{3}) (\d+)')


def log_lines(count: int, task: int) -> Records:
    return [
        f'{user} {at} "GET /shop/{rng.randrange(50)}/item?ref={rng.randrange(9)}" '
        f"{rng.choice([200, 200, 200, 404, 500])} {rng.randrange(9000)}"
        for rng, at, user in users(count, task)
    ]


def words_of_log(line: str) -> Iterator[tuple[str, int]]:
    found = _LOG.match(line)
    if found is None:
        return
    _, method, path, status, size = found.groups()
    yield f"{method} {path.partition('?')[0]}", int(size)
    if status != "200":
        yield f"status {status}", 1


def name_of(pair: tuple[str, int]) -> str:
    return pair[0]


def add_pairs(before: tuple[str, int], pair: tuple[str, int]) -> tuple[str, int]:
    return before[0], before[1] + pair[1]


def log_counts(lines: DataStream) -> DataStream:
    return lines.flat_map(words_of_log).key_by(name_of).reduce(add_pairs)


def log_counts_plain(lines: Records, emit: Emit) -> None:
    state: dict[str, tuple[str, int]] = {}
    for line in lines:
        for pair in words_of_log(line):
            name = name_of(pair)
            before = state.get(name)
            state[name] = pair if before is None else add_pairs(before, pair)
            emit(state[name])


# Rows with declared types, as in PyFlink

_ROW: Final = Types.ROW_NAMED(
    ["user", "page", "ms"], [Types.STRING(), Types.STRING(), Types.LONG()]
)


def row_of_visit(row: tuple[str, str, int, int]) -> Row:
    return Row(user=row[0], page=row[1], ms=row[2])


def user_of_row(row: Row) -> str:
    user: str = row.user
    return user


def add_rows(before: Row, row: Row) -> Row:
    return Row(user=before.user, page=row.page, ms=before.ms + row.ms)


def typed_rows(rows: DataStream) -> DataStream:
    typed = rows.map(row_of_visit, output_type=_ROW)
    return typed.key_by(user_of_row, key_type=Types.STRING()).reduce(add_rows)


def typed_rows_plain(rows: Records, emit: Emit) -> None:
    state: dict[str, Row] = {}
    for row in rows:
        made = row_of_visit(row)
        user = user_of_row(made)
        before = state.get(user)
        state[user] = made if before is None else add_rows(before, made)
        emit(state[user])


# Without duplicates, by state that expires


def repeated_events(count: int, task: int) -> Records:
    return [
        (f"order-{task}-{rng.randrange(1 + count // 2)}", user, at)
        for rng, at, user in users(count, task)
    ]


def order_of(event: tuple[str, str, int]) -> str:
    return event[0]


class FirstOfOrder(KeyedProcessFunction[str, tuple[str, str, int], tuple[str, str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, str, int]]:
        if self.seen.value() is None:
            self.seen.update(True)
            yield value


def without_duplicates(events: DataStream) -> DataStream:
    return events.key_by(order_of).process(FirstOfOrder())


def without_duplicates_plain(events: Records, emit: Emit) -> None:
    seen: dict[str, bool] = {}
    for event in events:
        order = order_of(event)
        if seen.get(order) is None:
            seen[order] = True
            emit(event)


# Two streams that meet


def is_payment(event: tuple[str, str, int]) -> bool:
    return event[2] % 20 == 0


def is_no_payment(event: tuple[str, str, int]) -> bool:
    return not is_payment(event)


class OrdersAndPayments(KeyedCoProcessFunction[str, Any, Any, tuple[str, int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts"))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[tuple[str, int, int]]:
        orders, payments = self.counts.value() or (0, 0)
        self.counts.update((orders + 1, payments))
        yield value[0], orders + 1, payments

    def process_element2(self, value: Any, ctx: Any) -> Iterator[tuple[str, int, int]]:
        orders, payments = self.counts.value() or (0, 0)
        self.counts.update((orders, payments + 1))
        yield value[0], orders, payments + 1


def two_streams(events: DataStream) -> DataStream:
    orders, payments = events.filter(is_no_payment), events.filter(is_payment)
    met = orders.connect(payments).key_by(order_of, order_of)
    return met.process(OrdersAndPayments())


def two_streams_plain(events: Records, emit: Emit) -> None:
    counts: dict[str, tuple[int, int]] = {}
    for event in events:
        if is_no_payment(event):
            order = order_of(event)
            orders, payments = counts.get(order) or (0, 0)
            counts[order] = orders + 1, payments
            emit((order, orders + 1, payments))
        if is_payment(event):
            order = order_of(event)
            orders, payments = counts.get(order) or (0, 0)
            counts[order] = orders, payments + 1
            emit((order, orders, payments + 1))


# The last values of each key, in a list state


class LastOfUser(KeyedProcessFunction[str, Visit, tuple[str, int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Visit, ctx: Any) -> Iterator[tuple[str, int, int]]:
        self.last.add(value.ms)
        last = list(self.last.get())
        if len(last) > 10:
            last = last[-10:]
            self.last.update(last)
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield value.user, seen, sum(last) // len(last)


def last_values(rows: DataStream) -> DataStream:
    return rows.map(make_visit).key_by(user_of).process(LastOfUser())


def last_values_plain(rows: Records, emit: Emit) -> None:
    state: dict[str, list[int]] = defaultdict(list)
    counts: dict[str, int] = {}
    for row in rows:
        visit = make_visit(row)
        last = state[user_of(visit)]
        last.append(visit.ms)
        if len(last) > 10:
            last = state[visit.user] = last[-10:]
        seen = counts[visit.user] = (counts.get(visit.user) or 0) + 1
        emit((visit.user, seen, sum(last) // len(last)))


# A class with helpers, plain objects, and functions of an imported module


class Reading:
    """A plain class, as most code has it."""

    def __init__(self, sensor: str, value: float, at: int) -> None:
        self.sensor = sensor
        self.value = value
        self.at = at
        self.level = "unknown"


class Classify(MapFunction[Any, Reading]):
    def __init__(self, limits: list[tuple[float, str]]) -> None:
        self._limits = limits

    def map(self, value: Any) -> Reading:
        reading = Reading(value[0], self._celsius(value[2]), value[3])
        reading.level = self._level_of(reading.value)
        return reading

    def _celsius(self, raw: int) -> float:
        return (raw / 50 - 32) / 1.8

    def _level_of(self, value: float) -> str:
        for limit, level in self._limits:
            if value < limit:
                return level
        return "high"


CLASSIFY: Final = Classify([(0.0, "frost"), (15.0, "cold"), (25.0, "mild")])


def sensor_and_level(reading: Reading) -> tuple[str, str]:
    return reading.sensor, reading.level


class Alarms(KeyedProcessFunction[Any, Reading, dict[str, Any]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Reading, ctx: Any) -> Iterator[dict[str, Any]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield {"sensor": value.sensor, "level": value.level, "count": count, "at": value.at}


def alarms(rows: DataStream) -> DataStream:
    return rows.map(CLASSIFY).key_by(sensor_and_level).process(Alarms())


def alarms_plain(rows: Records, emit: Emit) -> None:
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        reading = CLASSIFY.map(row)
        place = sensor_and_level(reading)
        count = counts[place] = (counts.get(place) or 0) + 1
        emit({"sensor": reading.sensor, "level": reading.level, "count": count, "at": reading.at})


def alarms_summary(found: Records) -> object:
    return greatest(((alarm["sensor"], alarm["level"]), alarm["count"]) for alarm in found)


def sorted_records(records: Records) -> object:
    return sorted(records, key=repr)


PROGRAMS: Final[dict[str, OrdinaryProgram]] = {
    "json-totals": OrdinaryProgram(
        "JSON lines, a dict in a ValueState, JSON lines",
        *(json_events, json_totals, json_totals_plain, json_totals_summary, 400_000),
    ),
    "json-windows": OrdinaryProgram(
        "JSON to a slots dataclass, event time, an AggregateFunction in a tumbling window",
        *(json_events, json_windows, json_windows_plain, sorted_records, 400_000),
    ),
    "two-exchanges": OrdinaryProgram(
        "dataclasses, a MapState, tuples, a second key_by, a ValueState",
        *(visit_rows, two_exchanges, two_exchanges_plain, greatest, 1_000_000),
    ),
    "sessions": OrdinaryProgram(
        "dataclasses, a session in a ValueState, an event-time timer that every event moves",
        *(visit_rows, sessions, sessions_plain, sorted_records, 1_000_000),
    ),
    "log-counts": OrdinaryProgram(
        "a regular expression in a flat_map, a running reduce",
        *(log_lines, log_counts, log_counts_plain, greatest, 600_000),
    ),
    "typed-rows": OrdinaryProgram(
        "Rows with declared types, a running reduce",
        *(visit_rows, typed_rows, typed_rows_plain),
        *(lambda rows: greatest((row.user, row.ms) for row in rows), 500_000),
    ),
    "without-duplicates": OrdinaryProgram(
        "one of each, by a ValueState with time to live",
        *(repeated_events, without_duplicates, without_duplicates_plain),
        *(lambda events: sorted(event[0] for event in events), 1_000_000),
    ),
    "two-streams": OrdinaryProgram(
        "two streams in a KeyedCoProcessFunction",
        *(repeated_events, two_streams, two_streams_plain),
        *(lambda found: greatest((order, a + b) for order, a, b in found), 600_000),
    ),
    "last-values": OrdinaryProgram(
        "dataclasses, the last ten values of a ListState",
        *(visit_rows, last_values, last_values_plain),
        *(lambda found: greatest((user, seen) for user, seen, _ in found), 600_000),
    ),
    "alarms": OrdinaryProgram(
        "a class with helper methods, plain objects, two attributes as key, dicts",
        *(visit_rows, alarms, alarms_plain, alarms_summary, 600_000),
    ),
}
