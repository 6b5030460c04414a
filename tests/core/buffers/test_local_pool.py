"""Local pools: sizes, overdraft, listeners, the owner, the end. Rows 40, 51-57, 61."""

from collections.abc import Callable

import pytest

from headgate.base.errors import PoolDestroyed
from headgate.core.buffers.buffer import Lease
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.buffers.local_pool import LocalPool, OfferAnswer

MakePool = Callable[..., GlobalPool]


class Channel:
    """A listener that answers as it was told to; what it takes it keeps."""

    def __init__(self, name: str, log: list[str], *answers: OfferAnswer) -> None:
        self.name = name
        self.leases: list[Lease] = []
        self.told_of_the_end = 0
        self._log = log
        self._answers = list(answers)

    def buffer_offered(self, lease: Lease) -> OfferAnswer:
        answer = self._answers.pop(0)
        self._log.append(f"{self.name} {answer.value}")
        if answer is not OfferAnswer.REFUSED:
            self.leases.append(lease)
        return answer

    def pool_destroyed(self) -> None:
        self.told_of_the_end += 1

    def release(self) -> None:
        while self.leases:
            self.leases.pop().release()


def take(pool: LocalPool, count: int) -> list[Lease]:
    leases = [pool.try_request() for _ in range(count)]
    assert None not in leases
    return [lease for lease in leases if lease]


def release(leases: list[Lease]) -> None:
    while leases:
        leases.pop().release()


# Requests.


def test_a_request_gives_a_buffer_or_nothing_at_once(make_pool: MakePool) -> None:
    pool = make_pool(3).create_pool("p", 2, 2)
    leases = take(pool, 2)
    assert pool.try_request() is None
    leases.pop().release()
    assert pool.lent == 1
    leases += take(pool, 1)
    release(leases)


def test_a_pool_takes_its_minimum_at_once_and_more_when_it_is_asked_for(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(5)
    pool = shelf.create_pool("p", 2, 4)
    assert (pool.size, pool.held, pool.lent, len(shelf.free)) == (4, 2, 0, 3)
    leases = take(pool, 3)
    assert (pool.held, len(shelf.free)) == (3, 2)
    release(leases)
    assert (pool.held, len(pool.free), len(shelf.free)) == (3, 3, 2)


def test_a_pool_that_finds_less_than_its_minimum_gets_the_rest_as_it_returns(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(4)
    greedy = shelf.create_pool("greedy", 0)
    leases = take(greedy, 3)
    pool = shelf.create_pool("p", 2, 2)
    assert (pool.size, pool.held) == (2, 1)
    mine = take(pool, 1)
    assert pool.try_request() is None
    release(leases)
    release(mine + take(pool, 1))


def test_a_returned_segment_is_lent_again_before_the_shelf_is_asked(make_pool: MakePool) -> None:
    pool = make_pool(4).create_pool("p", 0)
    (first,) = take(pool, 1)
    first.release()
    (second,) = take(pool, 1)
    assert second.segment is first.segment
    assert pool.held == 1
    second.release()


def test_a_pool_gets_nothing_beyond_its_size_even_if_the_shelf_is_full(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(10)
    pool = shelf.create_pool("p", 1, 3)
    leases = take(pool, 3)
    assert pool.try_request() is None
    assert len(shelf.free) == 7
    release(leases)


def test_an_empty_shelf_gives_nothing_though_the_size_would_allow_it(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    first = shelf.create_pool("first", 0)
    leases = take(first, 4)
    second = shelf.create_pool("second", 2)
    assert second.size > 0
    assert second.try_request() is None
    release(leases)


# Overdraft.


def test_overdraft_goes_so_far_beyond_the_size_and_no_farther(make_pool: MakePool) -> None:
    shelf = make_pool(10)
    pool = shelf.create_pool("p", 2, 2, overdraft=3)
    leases = take(pool, 2)
    for _ in range(3):
        lease = pool.try_request_overdraft()
        assert lease is not None
        leases.append(lease)
    assert pool.try_request_overdraft() is None
    assert (pool.size, pool.held, len(pool.free)) == (2, 5, 0)
    release(leases)
    assert (pool.held, len(pool.free), len(shelf.free)) == (2, 2, 8)


def test_overdraft_takes_a_regular_buffer_while_there_is_one(make_pool: MakePool) -> None:
    pool = make_pool(10).create_pool("p", 2, 2, overdraft=3)
    lease = pool.try_request_overdraft()
    assert lease is not None
    assert pool.held <= pool.size
    lease.release()


def test_a_pool_without_overdraft_stays_within_its_size(make_pool: MakePool) -> None:
    pool = make_pool(10).create_pool("p", 2, 2)
    leases = take(pool, 2)
    assert pool.try_request_overdraft() is None
    release(leases)


def test_overdraft_finds_nothing_on_an_empty_shelf(make_pool: MakePool) -> None:
    pool = make_pool(2).create_pool("p", 2, 2, overdraft=3)
    leases = take(pool, 2)
    assert pool.try_request_overdraft() is None
    release(leases)


def test_overdraft_leaves_others_their_minimum(make_pool: MakePool) -> None:
    shelf = make_pool(5)
    pool = shelf.create_pool("p", 2, 2, overdraft=3)
    other = shelf.create_pool("other", 2, 2)
    leases = take(pool, 2) + take(other, 1)
    overdrawn = pool.try_request_overdraft()
    assert overdrawn is not None
    assert pool.try_request_overdraft() is None  # what is left is the other's minimum
    leases += [overdrawn, *take(other, 1)]
    release(leases)


def test_an_overdrawn_pool_is_available_again_only_within_its_size(make_pool: MakePool) -> None:
    calls: list[str] = []
    pool = make_pool(10).create_pool("p", 1, 1, overdraft=1)
    pool.notify = lambda: calls.append("available")
    leases = take(pool, 1)
    overdrawn = pool.try_request_overdraft()
    assert overdrawn is not None
    assert not pool.available()
    overdrawn.release()
    assert (calls, pool.available()) == ([], False)
    release(leases)
    assert (calls, pool.available()) == (["available"], True)


# Excess.


def test_surplus_goes_back_at_once_when_a_pool_shrinks(make_pool: MakePool) -> None:
    shelf = make_pool(6)
    pool = shelf.create_pool("p", 2, 6)
    release(take(pool, 6))
    assert (pool.held, len(shelf.free)) == (6, 0)
    other = shelf.create_pool("other", 4, 4)
    assert (pool.size, pool.held, other.held, len(shelf.free)) == (2, 2, 4, 0)
    release(take(other, 4))


def test_lent_surplus_goes_back_as_it_returns(make_pool: MakePool) -> None:
    shelf = make_pool(6)
    pool = shelf.create_pool("p", 2, 6)
    leases = take(pool, 6)
    shelf.create_pool("other", 4, 4)
    held = []
    while leases:
        leases.pop().release()
        held.append((pool.held, len(pool.free), len(shelf.free)))
    assert held == [(5, 0, 1), (4, 0, 2), (3, 0, 3), (2, 0, 4), (2, 1, 4), (2, 2, 4)]


def test_a_request_above_the_size_returns_surplus_and_gives_nothing(make_pool: MakePool) -> None:
    pool = make_pool(6).create_pool("p", 0, 6)
    leases = take(pool, 2)
    pool.size = 1
    assert pool.try_request() is None
    assert pool.held == 2
    leases.pop().release()
    assert (pool.held, len(pool.free)) == (1, 0)
    release(leases)


def test_the_owner_is_asked_for_what_is_lent_beyond_the_new_size(make_pool: MakePool) -> None:
    shelf = make_pool(6)
    pool = shelf.create_pool("p", 2, 6)
    asked: list[int] = []
    pool.owner = asked.append
    leases = take(pool, 6)
    leases.pop().release()
    shelf.create_pool("other", 3, 3)
    assert (pool.size, asked) == (3, [2])
    release(leases)


def test_the_owner_is_left_alone_while_free_buffers_suffice(make_pool: MakePool) -> None:
    shelf = make_pool(6)
    pool = shelf.create_pool("p", 2, 6)
    asked: list[int] = []
    pool.owner = asked.append
    release(take(pool, 6))
    shelf.create_pool("other", 4, 4)
    assert asked == []


# Availability.


def test_who_asked_for_availability_is_told_once(make_pool: MakePool) -> None:
    calls: list[str] = []
    pool = make_pool(4).create_pool("p", 2, 2)
    pool.notify = lambda: calls.append("available")
    assert pool.available()
    leases = take(pool, 2)
    leases.pop().release()
    assert calls == []
    leases += take(pool, 1)
    assert not pool.available()
    assert not pool.available()
    release(leases)
    assert calls == ["available"]


def test_a_waiting_pool_is_told_when_another_returns_a_segment(make_pool: MakePool) -> None:
    calls: list[str] = []
    shelf = make_pool(3)
    first = shelf.create_pool("first", 0)
    leases = take(first, 3)
    second = shelf.create_pool("second", 1)
    second.notify = lambda: calls.append("available")
    assert not second.available()
    while not calls:
        leases.pop().release()
    assert second.available()
    release(take(second, 1))
    release(leases)


def test_a_waiting_pool_is_told_when_it_grows(make_pool: MakePool) -> None:
    calls: list[str] = []
    shelf = make_pool(4)
    other = shelf.create_pool("other", 3, 3)
    pool = shelf.create_pool("p", 1)
    pool.notify = lambda: calls.append("available")
    leases = take(pool, 1)
    assert not pool.available()
    other.destroy()
    assert calls == ["available"]
    assert pool.size == 4
    release(leases)


# Listeners.


def test_nobody_stands_in_the_queue_while_a_buffer_can_be_had(make_pool: MakePool) -> None:
    shelf = make_pool(2)
    pool = shelf.create_pool("p", 2, 2)
    log: list[str] = []
    assert not pool.listen(Channel("a", log))
    release(take(pool, 1))
    assert not pool.listen(Channel("a", log))
    leases = take(pool, 2)
    listener = Channel("a", log, OfferAnswer.REFUSED)
    assert pool.listen(listener)
    assert len(pool._listeners) == 1
    release(leases)


def test_a_recycled_segment_goes_to_the_first_listener(make_pool: MakePool) -> None:
    pool = make_pool(2).create_pool("p", 2, 2)
    log: list[str] = []
    first, second = Channel("a", log, OfferAnswer.ENOUGH), Channel("b", log, OfferAnswer.ENOUGH)
    leases = take(pool, 2)
    assert pool.listen(first) and pool.listen(second)
    segment = leases[-1].segment
    leases.pop().release()
    assert log == ["a enough"]
    assert [lease.segment for lease in first.leases] == [segment]
    assert not pool.free
    leases.pop().release()
    assert log == ["a enough", "b enough"]
    first.release()
    second.release()
    assert len(pool.free) == 2


def test_three_answers_keep_drop_or_pass_on_a_listener(make_pool: MakePool) -> None:
    pool = make_pool(4).create_pool("p", 4, 4)
    log: list[str] = []
    greedy = Channel(
        "greedy", log, OfferAnswer.WANTS_MORE, OfferAnswer.WANTS_MORE, OfferAnswer.ENOUGH
    )
    sated = Channel("sated", log, OfferAnswer.REFUSED)
    modest = Channel("modest", log, OfferAnswer.ENOUGH)
    leases = take(pool, 4)
    for listener in (greedy, sated, modest):
        pool.listen(listener)
    release(leases)
    assert log == [
        "greedy wants more",  # and stands at the end of the queue again
        "sated refused",  # the same segment goes on to
        "modest enough",
        "greedy wants more",
        "greedy enough",
    ]
    assert len(pool._listeners) == 0
    greedy.release()
    modest.release()


def test_a_segment_that_every_listener_refuses_is_free(make_pool: MakePool) -> None:
    calls: list[str] = []
    pool = make_pool(1).create_pool("p", 1, 1)
    pool.notify = lambda: calls.append("available")
    leases = take(pool, 1)
    assert not pool.available()
    for name in "ab":
        pool.listen(Channel(name, calls, OfferAnswer.REFUSED))
    release(leases)
    assert calls == ["a refused", "b refused", "available"]
    assert len(pool.free) == 1


def test_a_forgotten_listener_is_offered_nothing(make_pool: MakePool) -> None:
    pool = make_pool(1).create_pool("p", 1, 1)
    log: list[str] = []
    gone, there = Channel("gone", log), Channel("there", log, OfferAnswer.ENOUGH)
    leases = take(pool, 1)
    pool.listen(gone)
    pool.listen(there)
    pool.forget(gone)
    pool.forget(gone)
    release(leases)
    assert log == ["there enough"]
    there.release()


def test_a_listener_is_served_from_the_shelf_when_others_return(make_pool: MakePool) -> None:
    shelf = make_pool(3)
    first = shelf.create_pool("first", 0)
    leases = take(first, 3)
    second = shelf.create_pool("second", 1)
    log: list[str] = []
    listener = Channel("a", log, OfferAnswer.WANTS_MORE, OfferAnswer.ENOUGH)
    assert second.listen(listener)
    release(leases)
    assert log == ["a wants more", "a enough"]
    assert second.held == 2
    listener.release()


def test_a_listener_is_served_when_the_pool_grows(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    other = shelf.create_pool("other", 3, 3)
    pool = shelf.create_pool("p", 1)
    leases = take(pool, 1)
    log: list[str] = []
    listener = Channel("a", log, OfferAnswer.WANTS_MORE, OfferAnswer.WANTS_MORE, OfferAnswer.ENOUGH)
    pool.listen(listener)
    other.destroy()
    assert log == ["a wants more", "a wants more", "a enough"]
    listener.release()
    release(leases)


def test_surplus_is_returned_rather_than_offered(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    pool = shelf.create_pool("p", 1, 4)
    leases = take(pool, 4)
    log: list[str] = []
    listener = Channel("a", log, OfferAnswer.ENOUGH)
    pool.listen(listener)
    shelf.create_pool("other", 3, 3)
    for _ in range(3):
        leases.pop().release()
    assert log == []
    release(leases)
    assert log == ["a enough"]
    listener.release()


# The end.


def test_a_destroyed_pool_refuses_requests_by_its_name(make_pool: MakePool) -> None:
    pool = make_pool(2).create_pool("partition 'x'", 2)
    pool.destroy()
    with pytest.raises(PoolDestroyed, match="partition 'x' is destroyed"):
        pool.try_request()
    with pytest.raises(PoolDestroyed):
        pool.try_request_overdraft()


def test_free_segments_go_at_destruction_and_lent_ones_as_they_return(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(4)
    pool = shelf.create_pool("p", 4)
    leases = take(pool, 4)
    leases.pop().release()
    pool.destroy()
    pool.destroy()
    assert (pool.held, len(shelf.free), shelf.statistics().pools) == (3, 1, 0)
    leases.pop().release()
    assert (pool.held, len(pool.free), len(shelf.free)) == (2, 0, 2)
    release(leases)
    assert (pool.held, len(shelf.free)) == (0, 4)


def test_destruction_is_told_to_listeners_and_to_who_waits(make_pool: MakePool) -> None:
    calls: list[str] = []
    pool = make_pool(1).create_pool("p", 1)
    pool.notify = lambda: calls.append("woken")
    leases = take(pool, 1)
    log: list[str] = []
    listeners = [Channel("a", log), Channel("b", log)]
    for listener in listeners:
        pool.listen(listener)
    assert not pool.available()
    pool.destroy()
    assert [listener.told_of_the_end for listener in listeners] == [1, 1]
    assert calls == ["woken"]
    assert pool.available()  # so that a waiting producer tries again, and meets the end
    release(leases)
    assert log == []


def test_nobody_listens_to_a_destroyed_pool(make_pool: MakePool) -> None:
    pool = make_pool(1).create_pool("p", 1)
    pool.destroy()
    assert not pool.listen(Channel("a", []))


def test_a_destroyed_pool_takes_no_segment_that_it_had_waited_for(make_pool: MakePool) -> None:
    shelf = make_pool(2)
    first = shelf.create_pool("first", 0)
    leases = take(first, 2)
    second = shelf.create_pool("second", 1)
    assert not second.available()
    second.destroy()
    first.destroy()
    release(leases)
    assert (second.held, len(shelf.free)) == (0, 2)


def test_check_finds_surplus_and_listeners_beside_free_buffers(make_pool: MakePool) -> None:
    pool = make_pool(4).create_pool("p", 1, 4)
    release(take(pool, 2))
    pool.check()
    pool.size = 1
    with pytest.raises(AssertionError, match="excess"):
        pool.check()
    pool.size = 4
    pool._listeners.append(Channel("a", []))
    with pytest.raises(AssertionError, match="listener waits"):
        pool.check()
    pool._listeners.clear()
