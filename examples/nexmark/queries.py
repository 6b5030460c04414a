"""Nexmark's queries 0 to 8, each a plain function from streams to a stream.

q0 passes bids through, q1 converts currency, q2 selects, q3 joins people and auctions for good, q4
and q6 find out what auctions sold for, q5 counts in sliding windows, q7 takes the highest bid of a
window, q8 joins within windows. Windows are seconds long, so that a small run has many of them.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from events import Auction, Bid, Event, Person
from headgate.common import Time
from headgate.datastream import (
    AggregateFunction,
    CoGroupFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from headgate.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from headgate.datastream.window import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

WINDOW = Time.seconds(10)
SLIDE = Time.seconds(2)
STATES_NEAR = ("OR", "ID", "CA")
CATEGORY_WANTED = 10


class Streams(NamedTuple):
    """The events by kind."""

    persons: DataStream
    auctions: DataStream
    bids: DataStream


def by_kind(events: DataStream) -> Streams:
    """One stream for each kind of event; event times come along."""
    return Streams(
        events.filter(lambda event: isinstance(event, Person)).name("persons"),
        events.filter(lambda event: isinstance(event, Auction)).name("auctions"),
        events.filter(lambda event: isinstance(event, Bid)).name("bids"),
    )


# q0, q1, q2: one record at a time


def q0(streams: Streams) -> DataStream:
    """Pass through: every bid as it is. What the rest costs is more than this."""
    return streams.bids.map(lambda bid: bid)


def q1(streams: Streams) -> DataStream:
    """Currency conversion: every bid with its price in euros."""
    return streams.bids.map(lambda bid: bid._replace(price=bid.price * 0.908))


def q2(streams: Streams) -> DataStream:
    """Selection: auction and price of bids on some auctions."""
    chosen = streams.bids.filter(lambda bid: bid.auction % 123 == 0)
    return chosen.map(lambda bid: (bid.auction, bid.price))


# q3: a join without end


def q3(streams: Streams) -> DataStream:
    """Local item suggestion: who of a state nearby sells something of category 10."""
    near = streams.persons.filter(lambda person: person.state in STATES_NEAR)
    wanted = streams.auctions.filter(lambda auction: auction.category == CATEGORY_WANTED)
    keyed = wanted.connect(near).key_by(lambda a: a.seller, lambda p: p.id)
    return keyed.process(SellerJoin()).name("sellers nearby")


class SellerJoin(KeyedCoProcessFunction):
    """Remembers a person for good, and auctions until their seller is known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.person = runtime_context.get_state(ValueStateDescriptor("person"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("auctions"))

    def process_element1(
        self, value: Auction, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, str, str, int]]:
        person = self.person.value()
        if person is None:
            self.waiting.add(value)
        else:
            yield person.name, person.city, person.state, value.id

    def process_element2(
        self, value: Person, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, str, str, int]]:
        self.person.update(value)
        for auction in self.waiting.get():
            yield value.name, value.city, value.state, auction.id
        self.waiting.clear()


# q4, q6: what an auction sold for


class Sale(NamedTuple):
    """An auction that has ended, and its highest bid."""

    auction: int
    seller: int
    category: int
    price: int
    expires: int


def sales(streams: Streams) -> DataStream:
    """Each auction with a bid, when it ends."""
    keyed = streams.auctions.connect(streams.bids).key_by(lambda a: a.id, lambda b: b.auction)
    return keyed.process(WinningBid()).name("winning bids")


class WinningBid(KeyedCoProcessFunction):
    """Keeps the bids on an auction that could count; a timer at its end tells the highest."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction"))
        self.best = runtime_context.get_state(ValueStateDescriptor("best"))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early"))

    def process_element1(
        self, value: Auction, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Sale]:
        self.auction.update(value)
        for bid in self.early.get():
            self._count(bid, value)
        self.early.clear()
        ctx.timer_service().register_event_time_timer(value.expires)
        return []

    def process_element2(self, value: Bid, ctx: KeyedCoProcessFunction.Context) -> Iterable[Sale]:
        auction = self.auction.value()
        if auction is not None:
            self._count(value, auction)
        elif value.date_time > ctx.timer_service().current_watermark():
            self.early.add(value)  # the auction is still to come, or has ended
            ctx.timer_service().register_event_time_timer(value.date_time)
        return []

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[Sale]:
        auction, price = self.auction.value(), self.best.value()
        if auction is None:  # nobody has opened it by the time of the bid
            self.early.update([bid for bid in self.early.get() if bid.date_time > timestamp])
        elif timestamp == auction.expires:
            self.auction.clear()
            self.best.clear()
            if price is not None:
                yield Sale(auction.id, auction.seller, auction.category, price, auction.expires)

    def _count(self, bid: Bid, auction: Auction) -> None:
        if auction.date_time <= bid.date_time <= auction.expires:
            self.best.update(max(bid.price, self.best.value() or 0))


def q4(streams: Streams) -> DataStream:
    """Average price for a category: a new average for every sale, with the number of sales."""
    return sales(streams).key_by(lambda sale: sale.category).process(CategoryAverage())


class CategoryAverage(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(
        self, value: Sale, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, float]]:
        count, total = self.total.value() or (0, 0)
        count, total = count + 1, total + value.price
        self.total.update((count, total))
        yield value.category, count, total / count


def q6(streams: Streams) -> DataStream:
    """Average selling price by seller, over the last ten auctions, in the order of their ends."""
    return sales(streams).key_by(lambda sale: sale.seller).process(SellerAverage())


class SellerAverage(KeyedProcessFunction):
    """Sales of one seller come from several tasks; a timer at each end brings them in order."""

    LAST = 10

    def open(self, runtime_context: RuntimeContext) -> None:
        self.ended = runtime_context.get_map_state(MapStateDescriptor("ended"))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last"))

    def process_element(
        self, value: Sale, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[int, int, float]]:
        self.ended.put((value.expires, value.auction), value.price)
        ctx.timer_service().register_event_time_timer(value.expires)
        return []

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[int, int, float]]:
        for end in sorted(end for end in self.ended if end[0] == timestamp):
            prices = [*self.last.get(), self.ended.get(end)][-self.LAST :]
            self.last.update(prices)
            self.ended.remove(end)
            yield ctx.get_current_key(), end[1], sum(prices) / len(prices)


# q5: sliding windows, and windows of what they give


def q5(streams: Streams) -> DataStream:
    """Hot items: the auctions with the most bids of the last ten seconds, every two seconds."""
    counts = (
        streams.bids.key_by(lambda bid: bid.auction)
        .window(SlidingEventTimeWindows.of(WINDOW, SLIDE))
        .aggregate(Count(), WithWindowEnd())
        .name("bids by auction")
    )
    # A result has the last millisecond of its window as its time: those of one end meet again.
    ends = counts.key_by(lambda count: count[0]).window(TumblingEventTimeWindows.of(SLIDE))
    return ends.process(Hottest()).name("hottest")


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: object, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithWindowEnd(ProcessWindowFunction):
    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterator[tuple[int, int, int]]:
        for count in elements:
            yield context.window().end, key, count


class Hottest(ProcessWindowFunction):
    def process(
        self,
        key: int,
        context: ProcessWindowFunction.Context,
        elements: Iterable[tuple[int, int, int]],
    ) -> Iterator[tuple[int, int, int]]:
        counts = list(elements)
        most = max(count for _, _, count in counts)
        yield from sorted(count for count in counts if count[2] == most)


# q7, q8: tumbling windows


def q7(streams: Streams) -> DataStream:
    """Highest bid of every ten seconds, all of them if several are equal."""
    by_auction = streams.bids.key_by(lambda bid: bid.auction)
    highest = by_auction.window(TumblingEventTimeWindows.of(WINDOW)).aggregate(HighestBids())
    return (
        highest.window_all(TumblingEventTimeWindows.of(WINDOW))
        .reduce(higher)
        .flat_map(lambda bids: sorted(bids))
    )


class HighestBids(AggregateFunction):
    """The accumulator is a list of bids that all have the highest price."""

    def create_accumulator(self) -> list[Bid]:
        return []

    def add(self, value: Bid, accumulator: list[Bid]) -> list[Bid]:
        return higher(accumulator, [value])

    def get_result(self, accumulator: list[Bid]) -> list[Bid]:
        return accumulator

    def merge(self, acc_a: list[Bid], acc_b: list[Bid]) -> list[Bid]:
        return higher(acc_a, acc_b)


def higher(one: list[Bid], other: list[Bid]) -> list[Bid]:
    """The list with the higher price; both in one if they are equal."""
    if not one or not other:
        return one or other
    if one[0].price == other[0].price:
        return one + other
    return one if one[0].price > other[0].price else other


def q8(streams: Streams) -> DataStream:
    """New users: who came and opened an auction within the same ten seconds."""
    return (
        streams.persons.co_group(streams.auctions)
        .where(lambda person: person.id)
        .equal_to(lambda auction: auction.seller)
        .window(TumblingEventTimeWindows.of(WINDOW))
        .apply(NewSeller())
    )


class NewSeller(CoGroupFunction):
    def co_group(
        self, first: Iterable[Person], second: Iterable[Auction]
    ) -> Iterator[tuple[int, str, int]]:
        opened = any(True for _ in second)
        for person in first:
            if opened:
                start = TimeWindow.get_window_start_with_offset(
                    person.date_time, 0, WINDOW.to_milliseconds()
                )
                yield person.id, person.name, start


QUERIES = {query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8)}


def by_name(name: str, events: DataStream) -> DataStream:
    """The results of a query over a stream of all events."""
    return QUERIES[name](by_kind(events))


def time_of(event: Event) -> int:
    """The event time of any event."""
    return event.date_time
