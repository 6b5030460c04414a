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


# Listeners.


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


def test_nobody_listens_to_a_destroyed_pool(make_pool: MakePool) -> None:
    pool = make_pool(1).create_pool("p", 1)
    pool.destroy()
    assert not pool.listen(Channel("a", []))
