"""128 parallel tasks with an all-to-all exchange, with default settings."""

from headgate.base.settings import ExchangeSettings
from headgate.core.egress.router import RoundRobin
from headgate.plan import ship_strategies as ships
from headgate.plan.exchange_memory import size_exchange
from headgate.plan.job_graph import build_job_graph
from tests.host.conftest import MakeExchange
from tests.host.rig import consume, from_here, from_there, pool_of, produce
from tests.plan.programs import Program, reads

WIDTH = 128


def test_a_task_manager_with_127_peers_runs_with_default_settings(
    make_exchange: MakeExchange,
) -> None:
    """One of 128 is as large as in the job; the others have one task each way, all over sockets."""
    program = Program(parallelism=WIDTH)
    program.operator("count", reads(program.source(), ships.rebalance()))
    sized = size_exchange(build_job_graph(program.graph), ExchangeSettings())
    wide = make_exchange(sized.settings, segments=sized.segments)
    peers = [make_exchange(ExchangeSettings(), segments=40) for _ in range(WIDTH - 1)]
    records = list(range(WIDTH * 20))
    producers = [
        produce(peer, f"from-{number}", [(number, record) for record in range(20)])
        for number, peer in enumerate(peers)
    ]
    producers.append(produce(wide, "from-wide", records, subpartitions=WIDTH, router=RoundRobin()))
    inputs = [from_there(peer, f"from-{number}") for number, peer in enumerate(peers)]
    reader = consume(wide, [*inputs, from_here("from-wide", WIDTH - 1)])
    others = [consume(peer, [from_there(wide, "from-wide", n)]) for n, peer in enumerate(peers)]
    reader.join(60)
    for number in range(WIDTH - 1):
        assert reader.received[number] == [(number, record) for record in range(20)]
    for number, other in enumerate([*others, reader]):
        other.join(60)
        got = other.received[-1] if other is reader else other.records
        assert got == records[number::WIDTH]
    for producer in producers:
        producer.join(60)
    assert pool_of(wide)[1] == sized.segments
