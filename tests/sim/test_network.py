"""Pipes and wires: order, windows, delays, ends."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headgate.sim.clock import Clock
from headgate.sim.network import Network, NetworkConditions, Pipe

STILL = NetworkConditions(latency_ms=2, jitter_ms=0, bandwidth=100, window_bytes=1000, tiny_reads=0)


def make_pipe(conditions: NetworkConditions = STILL, seed: int = 0) -> tuple[Clock, Pipe]:
    clock = Clock()
    return clock, Pipe("a→b", clock, conditions, Random(seed))


def fire_all(clock: Clock) -> None:
    while clock.jump():
        clock.pop_due()[1]()


def read_all(pipe: Pipe, size: int = 64) -> bytes:
    got = b""
    while pipe.has_bytes:
        target = bytearray(size)
        got += target[: pipe.read_into([memoryview(target)])]
    return got


@given(
    chunks=st.lists(st.binary(max_size=300), max_size=20),
    seed=st.integers(0, 100),
    jitter_ms=st.sampled_from((0, 7)),
    tiny_reads=st.sampled_from((0, 0.5, 1)),
)
def test_what_is_read_is_what_was_written(
    chunks: list[bytes], seed: int, jitter_ms: float, tiny_reads: float
) -> None:
    clock, pipe = make_pipe(NetworkConditions(1, jitter_ms, 30, 250, tiny_reads), seed)
    whole = rest = b"".join(chunks)
    got = b""
    while rest:
        rest = rest[pipe.write([rest]) :]
        assert pipe.written - pipe.read <= 250
        fire_all(clock)
        got += read_all(pipe)
    assert got == whole


def test_a_byte_arrives_after_latency_and_its_turn_on_the_cable() -> None:
    clock, pipe = make_pipe()
    pipe.write([b"x" * 100])
    pipe.write([b"y" * 100])
    clock.jump()
    clock.pop_due()[1]()
    assert clock.now_ms == 1 + 2
    assert pipe.has_bytes
    clock.jump()
    assert clock.now_ms == 2 + 2


def test_a_full_window_takes_no_more_until_it_is_read() -> None:
    clock, pipe = make_pipe()
    assert pipe.write([b"x" * 900, b"y" * 900]) == 1000
    assert (pipe.room, pipe.write([b"z"])) == (0, 0)
    fire_all(clock)
    assert read_all(pipe) == b"x" * 900 + b"y" * 100
    assert pipe.room == 1000


def test_a_read_may_go_over_several_targets() -> None:
    clock, pipe = make_pipe()
    pipe.write([b"abcdef"])
    fire_all(clock)
    first, second = bytearray(4), bytearray(4)
    assert pipe.read_into([memoryview(first), memoryview(second)]) == 6
    assert (first, second) == (b"abcd", b"ef\0\0")


def test_the_end_comes_after_the_last_byte() -> None:
    clock, pipe = make_pipe()
    pipe.write([b"last"])
    pipe.finish("it closed")
    fire_all(clock)
    assert pipe.has_bytes
    assert pipe.end == "it closed"
    assert read_all(pipe) == b"last"
    assert pipe.readable


def test_a_tear_loses_what_has_not_arrived_and_nothing_else() -> None:
    clock, pipe = make_pipe()
    pipe.write([b"safe"])
    fire_all(clock)
    pipe.write([b"lost"])
    pipe.tear("reset", 1)
    fire_all(clock)
    assert read_all(pipe) == b"safe"
    assert pipe.end == "reset"


def test_a_stalled_pipe_delivers_nothing_and_says_nothing() -> None:
    clock, pipe = make_pipe()
    pipe.stalled = True
    pipe.write([b"x"])
    pipe.finish("it closed")
    fire_all(clock)
    assert not pipe.readable


def test_a_cut_wire_tells_both_sides() -> None:
    clock = Clock()
    wire = Network(clock, Random(0), lambda: STILL).wire("w0", "w1")
    assert wire.is_whole
    wire.cut(1, 2)
    fire_all(clock)
    assert (wire.up.end, wire.down.end) == ("connection reset", "connection reset")
    assert not wire.is_whole


def test_a_swallowed_connection_is_stalled_from_the_start() -> None:
    network = Network(Clock(), Random(0), lambda: STILL)
    network.swallows = 1
    assert not network.wire("w0", "w1").is_whole
    assert network.wire("w0", "w1").is_whole
