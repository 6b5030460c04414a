"""Streams of a real Redis server as a sink: once or more, kills, trouble, limits."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnready
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.redis import sink as redis_sink
from headgate.connectors.redis.client import RedisServer
from headgate.connectors.redis.sink import RedisStreamSink, progress_key
from headgate.control.error_classes import is_final, is_outside
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.kill_kit import RECORDS, killed_at_each_step
from tests.connectors.once_kit import go_back_twice, number_job, restore_rescale_and_wake, written
from tests.connectors.redis.kit import PASSWORD, RedisBench, RedisServerProcess
from tests.core.chain.sink_lab import SinkJob, open_sink, sink_context
from tests.servers import free_port

ONCE = DeliveryGuarantee.EXACTLY_ONCE


def sink_to(url: str, **settings: Any) -> RedisStreamSink:
    return RedisStreamSink(url, "words", **{"schema": SimpleStringSchema(), **settings})


@pytest.mark.parametrize("guarantee", [ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_records_become_entries_in_order(bench: RedisBench, guarantee: DeliveryGuarantee) -> None:
    words = [f"word {number}" for number in range(2500)]
    written(sink_to(bench.url, guarantee=guarantee), *words)
    assert bench.values("words") == words


def test_dicts_become_fields(bench: RedisBench) -> None:
    written(RedisStreamSink(bench.url, "words"), {"item": "tea", "price": 5, "raw": b"\xff"})
    ((_, fields),) = bench.client.xrange("words")
    assert fields == {b"item": b"tea", b"price": b"5", b"raw": b"\xff"}


def test_at_least_once_entries_are_there_before_the_checkpoint(bench: RedisBench) -> None:
    task = open_sink(sink_to(bench.url), sink_context())
    task.process(Bundle(["a"]), 0)
    assert bench.values("words") == ["a"]
    task.close()


def test_exactly_once_entries_are_there_after_the_checkpoint(bench: RedisBench) -> None:
    task = open_sink(sink_to(bench.url, guarantee=ONCE), sink_context())
    task.process(Bundle(["a"]), 0)
    task.before_barrier(SnapshotMoment(1, 0))
    task.snapshot(SnapshotMoment(1, 0))
    assert bench.values("words") == []
    task.checkpoint_completed(1)
    task.close()
    assert bench.values("words") == ["a"]


def once(server: RedisBench) -> SinkJob:
    return number_job(sink_to(server.url, guarantee=ONCE), lambda: server.values("words"))


def test_restores_rescaling_and_old_tasks_that_wake_write_nothing_twice(bench: RedisBench) -> None:
    restore_rescale_and_wake(once(bench))


def test_a_savepoint_with_pending_commits_may_be_gone_back_to_twice(bench: RedisBench) -> None:
    go_back_twice(once(bench))


def test_a_kill_between_any_two_steps_neither_loses_nor_repeats_an_entry(
    bench: RedisBench, tmp_path: Path
) -> None:
    def check(step: int) -> None:
        assert bench.values("words") == [str(n) for n in range(RECORDS)], f"killed at step {step}"
        bench.client.flushall()

    connection = redis.connection.AbstractConnection
    patches = [(connection, "send_packed_command"), (redis.Connection, "read_response")]
    sink = sink_to(bench.url, guarantee=ONCE)
    assert killed_at_each_step(sink, tmp_path, patches, check) > 8


def test_at_least_once_a_kill_loses_nothing(bench: RedisBench, tmp_path: Path) -> None:
    def check(step: int) -> None:
        assert set(bench.values("words")) == {str(n) for n in range(RECORDS)}, f"step {step}"
        bench.client.flushall()

    patches = [(redis.connection.AbstractConnection, "send_packed_command")]
    assert killed_at_each_step(sink_to(bench.url), tmp_path, patches, check) > 4


def test_a_script_whose_answer_is_lost_is_not_repeated(bench: RedisBench) -> None:
    adder = redis_sink.StreamAdder(sink_to(bench.url), "sink 'out'")
    adder.add_once("ada", 1, [("value", "a")])
    adder.add_once("ada", 1, [("value", "a")])
    adder.add_once("ada", 2, [("value", "b")])
    adder.add_once("bob", 1, [("value", "c")])
    adder.close()
    assert bench.values("words") == ["a", "b", "c"]
    assert 0 < bench.client.ttl(progress_key("words", "ada")) <= 90 * 24 * 60 * 60


@pytest.mark.parametrize("answer", ["MOVED 866 h:1", "CROSSSLOT Keys don't hash to one slot"])
def test_a_cluster_ends_the_job(answer: str) -> None:
    server = RedisServer("RedisStreamSink", "redis://h")
    problem = server.problem(redis.ResponseError(answer), "adding")
    assert is_final(problem)
    assert "Redis Cluster is not supported" in str(problem)


def test_an_entry_that_is_refused_leaves_no_note(bench: RedisBench) -> None:
    adder = redis_sink.StreamAdder(sink_to(bench.url), "sink 'out'")
    bench.client.set("words", "no stream")
    with pytest.raises(ConnectorError, match="WRONGTYPE"):
        adder.add_once("ada", 1, [("value", "a")])
    bench.client.delete("words")
    adder.add_once("ada", 1, [("value", "a")])
    adder.close()
    assert bench.values("words") == ["a"]


@pytest.mark.parametrize("guarantee", [ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_a_long_stream_is_trimmed(bench: RedisBench, guarantee: DeliveryGuarantee) -> None:
    written(sink_to(bench.url, guarantee=guarantee, max_len=100), *map(str, range(3000)))
    assert 100 <= bench.client.xlen("words") < 500


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        ("words", "headgate:progress:{words}:ada"),
        ("{shop}:words", "headgate:progress:{shop}:ada"),
        ("{}words", "headgate:progress:{{}words}:ada"),
    ],
)
def test_the_note_is_in_the_hash_slot_of_the_stream(
    bench: RedisBench, stream: str, key: str
) -> None:
    assert progress_key(stream, "ada") == key
    slots = [redis.crc.key_slot(name.encode()) for name in (stream, key)]
    assert stream == "{}words" or slots[0] == slots[1]


def restart_soon(server: RedisServerProcess) -> Callable[[], None]:
    """Starts a server that is down from another thread; call what it returns to wait for it."""
    starting = threading.Timer(0.3, server.process.start)
    starting.start()
    return starting.join


@pytest.mark.parametrize("guarantee", [ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_a_lost_connection_and_a_restarted_server_are_survived(
    own_server: RedisServerProcess, guarantee: DeliveryGuarantee
) -> None:
    bench = RedisBench(own_server)
    task = open_sink(sink_to(own_server.url, guarantee=guarantee), sink_context())
    task.process(Bundle(["a"]), 0)
    bench.end_others()
    task.process(Bundle(["b"]), 0)
    task.before_barrier(SnapshotMoment(1, 0))
    task.snapshot(SnapshotMoment(1, 0))
    bench.close()
    own_server.process.kill()
    wait = restart_soon(own_server)
    task.checkpoint_completed(1)
    task.process(Bundle(["c"]), 0)
    task.before_barrier(SnapshotMoment(2, 0))
    task.snapshot(SnapshotMoment(2, 0))
    task.checkpoint_completed(2)
    wait()
    task.close()
    bench = RedisBench(own_server)
    assert bench.values("words") == ["a", "b", "c"]
    bench.close()


def test_a_server_without_memory_holds_the_task_up(bench: RedisBench) -> None:
    task = open_sink(sink_to(bench.url), sink_context())
    bench.client.config_set("maxmemory", 1)
    freed = threading.Timer(0.3, lambda: bench.client.config_set("maxmemory", 0))
    freed.start()
    task.process(Bundle(["a"]), 0)
    freed.join()
    task.close()
    assert bench.values("words") == ["a"]


def test_records_that_are_no_entries_go_to_the_policy(bench: RedisBench) -> None:
    context = sink_context()
    rejected: list[object] = []
    object.__setattr__(context, "malformed", lambda record, error: rejected.append(record))
    writer = RedisStreamSink(bench.url, "words").create_writer(context)
    writer.write([{"value": "a"}, "no dict", {}, {"value": None}, {"value": "b"}])
    writer.close()
    assert rejected == ["no dict", {}, {"value": None}]
    assert bench.values("words") == ["a", "b"]


def test_more_than_may_wait_is_told(bench: RedisBench) -> None:
    task = open_sink(sink_to(bench.url, guarantee=ONCE, max_pending_bytes=1000), sink_context())
    with pytest.raises(ConnectorError, match="more than 1000 bytes wait.*AT_LEAST_ONCE"):
        task.process(Bundle(["x" * 10] * 2000), 0)
    task.close()


def test_a_server_that_does_not_answer_is_outside_trouble() -> None:
    with pytest.raises(ServerUnready, match="sink 'out'.*127.0.0.1") as found:
        open_sink(sink_to(f"redis://127.0.0.1:{free_port()}/0"), sink_context())
    assert is_outside(found.value)


def test_a_wrong_password_is_told_and_not_shown(bench: RedisBench) -> None:
    bench.client.config_set("requirepass", PASSWORD)
    try:
        with pytest.raises(ConnectorError, match="check user, password") as found:
            open_sink(sink_to(bench.url.replace("//", "//:guess@")), sink_context())
        assert not is_outside(found.value)
        assert "guess" not in str(found.value)
    finally:
        bench.client.config_set("requirepass", "")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"stream": ""}, "give its key"),
        ({"schema": "text"}, "SerializationSchema"),
        ({"guarantee": "once"}, "DeliveryGuarantee"),
        ({"max_len": 0}, "max_len"),
        ({"max_pending_bytes": "1"}, "max_pending_bytes"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        RedisStreamSink(**{"url": "redis://localhost", "stream": "words", **settings})
