"""The global pool: admission, redistribution, claims; and all pools together. Rows 47-50, 57."""

from collections.abc import Callable
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.errors import InsufficientBuffers, PoolDestroyed
from headgate.core.buffers.buffer import Lease, Segment
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.buffers.local_pool import LocalPool, OfferAnswer
from tests.arena import assert_all_home, plain_pool

MakePool = Callable[..., GlobalPool]
Bounds = tuple[int, int | None]


class Claimant:
    """A channel with exclusive segments; what comes back after its end goes to the pool."""

    def __init__(self, pool: GlobalPool) -> None:
        self.segments: list[Segment] = []
        self.ended = False
        self._pool = pool

    def segment_returned(self, segment: Segment) -> None:
        if self.ended:
            self._pool.unclaim(self, [segment])
        else:
            self.segments.append(segment)

    def end(self) -> None:
        self.ended = True
        segments, self.segments = self.segments, []
        self._pool.unclaim(self, segments)


def reference(total: int, claimed: int, pools: list[Bounds]) -> list[int]:
    """The rule of row 49 in exact arithmetic: running shares, rounded down."""
    rest = total - claimed - sum(minimum for minimum, _ in pools)
    parts = [
        rest if maximum is None else min(rest, maximum - minimum) for minimum, maximum in pools
    ]
    whole = sum(parts)
    if not rest or not whole:
        return [minimum for minimum, _ in pools]
    share = Fraction(min(rest, whole), whole)
    marks = [floor(share * sum(parts[:index])) for index in range(len(parts) + 1)]
    return [
        minimum + after - before
        for (minimum, _), before, after in zip(pools, marks, marks[1:], strict=False)
    ]


# Redistribution.


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, int, list[Bounds]]:
    claimed = draw(st.integers(0, 20))
    minima = draw(st.lists(st.integers(0, 10), max_size=8))
    rooms = st.none() | st.integers(0, 30)
    pools = [
        (minimum, None if (room := draw(rooms)) is None else minimum + room) for minimum in minima
    ]
    return claimed + sum(minima) + draw(st.integers(0, 60)), claimed, pools


@given(worlds())
def test_redistribution_follows_the_rule_and_leaves_nothing_over(
    world: tuple[int, int, list[Bounds]],
) -> None:
    total, claimed, pools = world
    shelf = plain_pool(total)
    shelf.claim("channel", Claimant(shelf), claimed)
    made = [shelf.create_pool("p", minimum, maximum) for minimum, maximum in pools]
    sizes = [pool.size for pool in made]
    assert sizes == reference(total, claimed, pools)
    most = sum(total if maximum is None else maximum for _, maximum in pools)
    assert sum(sizes) == min(total - claimed, most) if pools else not sizes
    shelf.check()


def test_what_a_claimant_is_owed_goes_to_its_heir(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    pool = shelf.create_pool("p", 0)
    leases = [pool.try_request() for _ in range(4)]
    first, heir = Claimant(shelf), Claimant(shelf)
    shelf.claim("channel", first, 2)
    shelf.rehome(first, heir)
    for lease in leases:
        assert lease is not None
        lease.release()
    assert (len(first.segments), len(heir.segments), shelf.claimed) == (0, 2, 2)
    heir.end()
    assert shelf.claimed == 0


class Glutton:
    """A listener that takes whatever it is offered, and does something about it."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.leases: list[Lease] = []
        self._act = act

    def buffer_offered(self, lease: Lease) -> OfferAnswer:
        self.leases.append(lease)
        self._act()
        return OfferAnswer.WANTS_MORE

    def pool_destroyed(self) -> None: ...

    def release(self, pool: LocalPool) -> None:
        pool.forget(self)
        while self.leases:
            self.leases.pop().release()


def test_a_waiting_pool_does_not_take_what_a_newcomer_is_promised(make_pool: MakePool) -> None:
    shelf = make_pool(9)
    gone = shelf.create_pool("gone", 0)
    late = [gone.try_request() for _ in range(3)]
    gone.destroy()
    saving, hungry = shelf.create_pool("saving", 0), shelf.create_pool("hungry", 0)
    for lease in [saving.try_request() for _ in range(4)]:
        assert lease is not None
        lease.release()
    glutton = Glutton()
    first = [hungry.try_request(), hungry.try_request()]
    assert hungry.listen(glutton)
    assert (saving.size, hungry.size, len(shelf.free)) == (4, 5, 0)
    newcomer = shelf.create_pool("newcomer", 5)
    assert (saving.size, hungry.size, newcomer.size) == (1, 1, 7)
    assert (glutton.leases, newcomer.held, len(shelf.free)) == ([], 3, 0)
    glutton.release(hungry)
    for lease in late + first:
        assert lease is not None
        lease.release()


def test_a_listener_may_change_the_pools_while_they_are_shared_out(make_pool: MakePool) -> None:
    shelf = make_pool(12)
    other = shelf.create_pool("other", 6, 6)
    first, second = shelf.create_pool("first", 1, 9), shelf.create_pool("second", 1, 9)
    claimant = Claimant(shelf)
    shelf.claim("channel", claimant, 4)
    held = first.try_request()
    ended: list[str] = []

    def end_the_claim() -> None:
        if not ended:
            ended.append("once")
            claimant.end()

    glutton = Glutton(end_the_claim)
    assert first.listen(glutton)
    other.destroy()
    assert ended == ["once"]
    assert [first.size, second.size] == reference(12, 0, [(1, 9), (1, 9)])
    shelf.check()
    glutton.release(first)
    assert held is not None
    held.release()


# Admission.


def test_minima_beyond_the_total_are_refused_with_the_numbers(make_pool: MakePool) -> None:
    shelf = make_pool(10)
    shelf.create_pool("first", 4, 10)
    with pytest.raises(InsufficientBuffers) as caught:
        shelf.create_pool("partition 'x'", 7)
    error = caught.value
    assert (error.who, error.required, error.available) == ("partition 'x'", 7, 6)
    assert (error.total, error.missing) == (10, 1)
    assert len(shelf.pools) == 1
    shelf.create_pool("second", 6)


def test_a_claim_beyond_what_is_unpromised_is_refused_with_the_numbers(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(10)
    shelf.create_pool("first", 4)
    claimant = Claimant(shelf)
    shelf.claim("channel 0", claimant, 5)
    with pytest.raises(InsufficientBuffers) as caught:
        shelf.claim("channel 1", Claimant(shelf), 2)
    error = caught.value
    assert (error.who, error.required, error.available, error.total) == ("channel 1", 2, 1, 10)
    assert (shelf.claimed, shelf.required) == (5, 9)
    claimant.end()


def test_a_closed_pool_admits_nobody(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    pool = shelf.create_pool("p", 1)
    lease = pool.try_request()
    shelf.close()
    with pytest.raises(PoolDestroyed, match="gate 'x'"):
        shelf.create_pool("gate 'x'", 1)
    with pytest.raises(PoolDestroyed, match="channel 7"):
        shelf.claim("channel 7", Claimant(shelf), 1)
    assert lease is not None
    lease.release()  # what is out still comes home
    assert len(pool.free) == 1


# Claims.


def test_a_claim_comes_before_a_waiting_pool(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    holder = shelf.create_pool("holder", 0)
    leases = [holder.try_request() for _ in range(4)]
    waiting = shelf.create_pool("waiting", 1)
    assert not waiting.available()
    claimant = Claimant(shelf)
    shelf.claim("channel", claimant, 1)
    holder.destroy()
    got = []
    for lease in leases:
        assert lease is not None
        lease.release()
        got.append((len(claimant.segments), waiting.held))
    assert got == [(1, 0), (1, 1), (1, 1), (1, 1)]
    claimant.end()


def test_giving_back_more_than_was_claimed_is_a_bug(make_pool: MakePool) -> None:
    shelf = make_pool(3)
    segment = shelf.try_take()
    assert segment is not None
    with pytest.raises(AssertionError, match="more segments were given back"):
        shelf.unclaim(Claimant(shelf), [segment])
    shelf.claimed = 0
    shelf.segment_returned(segment)


class Waiter:
    """A listener that wants so many buffers."""

    def __init__(self, twin: "PoolsTwin", pool: LocalPool, wants: int) -> None:
        self.twin = twin
        self.pool = pool
        self.wants = wants
        self.queued = False
        self.told_of_the_end = False

    def buffer_offered(self, lease: Lease) -> OfferAnswer:
        assert self.queued and not self.pool.destroyed
        if not self.wants:
            self.queued = False
            return OfferAnswer.REFUSED
        self.twin.lent.append((self.pool, lease))
        self.wants -= 1
        self.queued = self.wants > 0
        return OfferAnswer.WANTS_MORE if self.wants else OfferAnswer.ENOUGH

    def pool_destroyed(self) -> None:
        assert self.queued
        self.queued = False
        self.told_of_the_end = True


class PoolsTwin(RuleBasedStateMachine):
    """One global pool, local pools, claims, listeners: each segment is in exactly one place."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: list[LocalPool] = []
        self.bounds: dict[LocalPool, Bounds] = {}
        self.lent: list[tuple[LocalPool | Claimant, Lease]] = []
        self.claims: dict[Claimant, int] = {}
        self.waiters: list[Waiter] = []
        self.unnotified: list[LocalPool] = []

    @initialize(total=st.integers(1, 16))
    def start(self, total: int) -> None:
        self.shelf = plain_pool(total, 8)

    @rule(
        minimum=st.integers(0, 4),
        room=st.none() | st.integers(0, 6),
        overdraft=st.integers(0, 2),
        yields=st.booleans(),
    )
    def pool_is_created(self, minimum: int, room: int | None, overdraft: int, yields: bool) -> None:
        maximum = None if room is None else minimum + room
        promised = self.claimed + sum(bounds[0] for bounds in self.bounds.values())
        if promised + minimum > self.shelf.total:
            with pytest.raises(InsufficientBuffers):
                self.shelf.create_pool("p", minimum, maximum, overdraft)
            return
        pool = self.shelf.create_pool("p", minimum, maximum, overdraft)
        self.pools.append(pool)
        self.bounds[pool] = (minimum, maximum)
        pool.notify = lambda: self.unnotified.remove(pool)
        if yields:
            pool.owner = lambda count: self.owner_is_asked(pool, count)

    def owner_is_asked(self, pool: LocalPool, count: int) -> None:
        assert count == pool.held - pool.size
        mine = [lease for holder, lease in self.lent if holder is pool][:count]
        self.lent = [(holder, lease) for holder, lease in self.lent if lease not in mine]
        for lease in mine:
            lease.release()

    @precondition(lambda self: self.pools)
    @rule(data=st.data(), overdraft=st.booleans())
    def buffer_is_requested(self, data: st.DataObject, overdraft: bool) -> None:
        pool = data.draw(st.sampled_from(self.pools))
        on_shelf = len(self.shelf.free) > 0
        within = len(pool.free) > 0 or (on_shelf and pool.held < pool.size)
        beyond = on_shelf and pool.size <= pool.held < pool.size + pool.overdraft
        lease = pool.try_request_overdraft() if overdraft else pool.try_request()
        assert (lease is not None) == (within or (overdraft and beyond))
        if lease is not None:
            self.lent.append((pool, lease))

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def buffer_is_released(self, data: st.DataObject) -> None:
        _, lease = self.lent.pop(data.draw(st.integers(0, len(self.lent) - 1)))
        lease.release()

    @precondition(lambda self: self.pools)
    @rule(data=st.data())
    def availability_is_asked(self, data: st.DataObject) -> None:
        pool = data.draw(st.sampled_from(self.pools))
        if pool.available():
            lease = pool.try_request()
            assert lease is not None
            self.lent.append((pool, lease))
        elif pool not in self.unnotified:
            self.unnotified.append(pool)

    @precondition(lambda self: self.pools)
    @rule(data=st.data(), wants=st.integers(0, 3))
    def listener_comes(self, data: st.DataObject, wants: int) -> None:
        pool = data.draw(st.sampled_from(self.pools))
        waiter = Waiter(self, pool, wants)
        waiter.queued = pool.listen(waiter)
        if waiter.queued:
            self.waiters.append(waiter)
        else:
            assert pool.free

    @precondition(lambda self: self.waiters)
    @rule(data=st.data(), forget=st.booleans())
    def listener_loses_interest(self, data: st.DataObject, forget: bool) -> None:
        waiter = data.draw(st.sampled_from(self.waiters))
        waiter.wants = 0
        if forget:
            waiter.pool.forget(waiter)
            waiter.queued = False

    @precondition(lambda self: self.pools)
    @rule(data=st.data())
    def pool_is_destroyed(self, data: st.DataObject) -> None:
        pool = data.draw(st.sampled_from(self.pools))
        listening = [w for w in self.waiters if w.pool is pool and w.queued]
        self.pools.remove(pool)
        del self.bounds[pool]
        pool.destroy()
        assert all(waiter.told_of_the_end for waiter in listening)
        assert pool not in self.unnotified
        with pytest.raises(PoolDestroyed):
            pool.try_request()

    @rule(count=st.integers(0, 4))
    def segments_are_claimed(self, count: int) -> None:
        claimant = Claimant(self.shelf)
        promised = self.claimed + sum(bounds[0] for bounds in self.bounds.values())
        if promised + count > self.shelf.total:
            with pytest.raises(InsufficientBuffers):
                self.shelf.claim("c", claimant, count)
            return
        self.shelf.claim("c", claimant, count)
        self.claims[claimant] = count

    @precondition(lambda self: any(c.segments for c in self.claims))
    @rule(data=st.data())
    def claimed_segment_is_lent(self, data: st.DataObject) -> None:
        claimant = data.draw(st.sampled_from([c for c in self.claims if c.segments]))
        self.lent.append((claimant, Lease(claimant.segments.pop(), claimant)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def claim_is_given_up(self, data: st.DataObject) -> None:
        claimant = data.draw(st.sampled_from([*self.claims]))
        del self.claims[claimant]
        claimant.end()

    @invariant()
    def every_segment_is_in_exactly_one_place(self) -> None:
        places = [segment.index for segment in self.shelf.free]
        places += [segment.index for pool in self.pools for segment in pool.free]
        places += [segment.index for claimant in self.claims for segment in claimant.segments]
        places += [lease.segment.index for _, lease in self.lent]
        assert sorted(places) == list(range(self.shelf.total))

    @invariant()
    def each_pool_counts_what_it_has_lent(self) -> None:
        self.shelf.check()
        for pool in self.pools:
            assert pool.lent == sum(holder is pool for holder, _ in self.lent)

    @invariant()
    def claims_are_served_as_far_as_there_is_anything(self) -> None:
        assert self.shelf.claimed == self.claimed
        served = sum(len(claimant.segments) for claimant in self.claims)
        served += sum(isinstance(holder, Claimant) for holder, _ in self.lent)
        assert served <= self.claimed
        assert served == self.claimed or not self.shelf.free, "a claim waits beside free segments"

    @property
    def claimed(self) -> int:
        """Live claims in full; of those given up what is still in use."""
        leftover = [h for h, _ in self.lent if isinstance(h, Claimant) and h.ended]
        return sum(self.claims.values()) + len(leftover)

    @invariant()
    def sizes_follow_the_rule(self) -> None:
        expected = reference(self.shelf.total, self.claimed, list(self.bounds.values()))
        assert [pool.size for pool in self.pools] == expected
        assert sum(expected) + self.claimed <= self.shelf.total

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        self.waiters = [waiter for waiter in self.waiters if waiter.queued]
        for pool in [waiter.pool for waiter in self.waiters] + self.unnotified:
            assert not pool.free
            assert pool.held >= pool.size or not self.shelf.free

    def teardown(self) -> None:
        for waiter in self.waiters:
            waiter.wants = 0
        while self.lent:
            self.lent.pop()[1].release()
        for claimant in self.claims:
            claimant.end()
        if hasattr(self, "shelf"):
            assert_all_home(self.shelf)


TestPoolsTwin = PoolsTwin.TestCase
