"""Streams of a real NATS server as a sink: once or more, kills, trouble, limits."""

import threading
import time
from pathlib import Path
from typing import Any

import nats.aio.client
import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnready
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.nats.sink import NatsSink, StreamPublisher
from headgate.control.error_classes import is_outside
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.kill_kit import RECORDS, killed_at_each_step
from tests.connectors.nats.kit import TOKEN, NatsBench, NatsServerProcess
from tests.connectors.once_kit import go_back_twice, number_job, restore_rescale_and_wake, written
from tests.core.chain.sink_lab import SinkJob, open_sink, sink_context
from tests.servers import free_port

ONCE = DeliveryGuarantee.EXACTLY_ONCE
BOTH = pytest.mark.parametrize("guarantee", [ONCE, DeliveryGuarantee.AT_LEAST_ONCE])


def sink_to(url: str, **settings: Any) -> NatsSink:
    given = {"subject": "words.new", "schema": SimpleStringSchema(), **settings}
    return NatsSink(url, **given)


def checkpoint(task: Any, number: int) -> None:
    task.snapshot(SnapshotMoment(number, 0))
    task.checkpoint_completed(number)


@BOTH
def test_records_become_messages_in_order(bench: NatsBench, guarantee: DeliveryGuarantee) -> None:
    words = [f"word {number}" for number in range(1200)]
    written(sink_to(bench.url, guarantee=guarantee), *words)
    assert bench.values() == words


def test_a_function_chooses_the_subject(bench: NatsBench) -> None:
    sink = sink_to(bench.url, subject=lambda word: f"words.{word}", stream="WORDS")
    written(sink, "a", "b")
    assert bench.call(bench.js.get_msg("WORDS", 2)).subject == "words.b"


def test_exactly_once_messages_are_there_after_the_checkpoint(bench: NatsBench) -> None:
    task = open_sink(sink_to(bench.url, guarantee=ONCE), sink_context())
    task.process(Bundle(["a"]), 0)
    task.snapshot(SnapshotMoment(1, 0))
    assert bench.values() == []
    task.checkpoint_completed(1)
    task.close()
    assert bench.values() == ["a"]


def once(server: NatsBench) -> SinkJob:
    return number_job(sink_to(server.url, guarantee=ONCE), server.values)


def test_restores_rescaling_and_old_tasks_that_wake_write_nothing_twice(bench: NatsBench) -> None:
    restore_rescale_and_wake(once(bench))


def test_a_savepoint_with_pending_commits_may_be_gone_back_to_twice(bench: NatsBench) -> None:
    go_back_twice(once(bench))


def test_a_kill_between_any_two_steps_neither_loses_nor_repeats_a_message(
    bench: NatsBench, tmp_path: Path
) -> None:
    def check(step: int) -> None:
        assert bench.values() == [str(n) for n in range(RECORDS)], f"killed at step {step}"
        bench.purge()

    client = nats.aio.client.Client
    patches = [(client, "_send_publish"), (client, "_process_msg")]
    sink = sink_to(bench.url, guarantee=ONCE)
    assert killed_at_each_step(sink, tmp_path, patches, check) > 10


def test_ids_are_found_beyond_the_window_and_only_those_of_the_writers(bench: NatsBench) -> None:
    publisher = StreamPublisher(sink_to(bench.url).nats, None, "words.new", "sink 'out'", 8)
    since = publisher.last_sequence()
    publisher.publish([(f"ada-1-{place}", "words.new", b"x") for place in range(600)])
    publisher.publish([("bob-1-0", "words.new", b"x")])
    assert publisher.ids_since(since, frozenset({"bob"})) == {"bob-1-0"}
    assert len(publisher.ids_since(since, frozenset({"ada", "bob"}))) == 601
    assert publisher.ids_since(601, frozenset({"ada"})) == frozenset()
    publisher.close()


def test_a_commit_is_not_repeated_when_the_stream_has_forgotten_the_ids(
    running_nats: NatsServerProcess,
) -> None:
    bench = NatsBench(running_nats, duplicate_window=0.1)
    sink = sink_to(bench.url, guarantee=ONCE)
    writer, committer = sink.create_writer(sink_context()), sink.create_committer(sink_context())
    writer.write(["a", "b"])
    writer.flush()
    lots = writer.prepare_commit(SnapshotMoment(1, 0))
    committer.commit(lots)
    time.sleep(0.3)  # beyond the window
    committer.commit_again(lots)
    assert bench.values() == ["a", "b"]
    committer.commit(lots)  # what the window alone would do
    assert bench.values() == ["a", "b", "a", "b"]
    committer.close()
    writer.close()
    bench.delete()
    bench.close()


@BOTH
def test_a_restarted_server_is_survived(
    own_server: NatsServerProcess, guarantee: DeliveryGuarantee
) -> None:
    bench = NatsBench(own_server)
    task = open_sink(sink_to(own_server.url, guarantee=guarantee), sink_context())
    task.process(Bundle(["a"]), 0)
    task.snapshot(SnapshotMoment(1, 0))
    bench.close()
    own_server.process.kill()
    starting = threading.Timer(0.3, own_server.process.start)
    starting.start()
    task.checkpoint_completed(1)
    task.process(Bundle(["b"]), 0)
    checkpoint(task, 2)
    starting.join()
    task.close()
    bench = NatsBench(own_server)
    assert bench.values() == ["a", "b"]
    bench.close()


def test_a_full_stream_holds_the_task_up(running_nats: NatsServerProcess) -> None:
    bench = NatsBench(running_nats, max_msgs=2, discard=nats.js.api.DiscardPolicy.NEW)
    task = open_sink(sink_to(bench.url), sink_context())
    emptied = threading.Timer(0.3, bench.purge)
    emptied.start()
    task.process(Bundle(["a", "b", "c"]), 0)
    emptied.join()
    task.close()
    assert "c" in bench.values()
    bench.delete()
    bench.close()


def test_records_that_are_no_messages_go_to_the_policy(bench: NatsBench) -> None:
    context = sink_context()
    rejected: list[object] = []
    object.__setattr__(context, "malformed", lambda record, error: rejected.append(record))
    writer = sink_to(bench.url, subject=str, stream="WORDS").create_writer(context)
    large = "x" * (2 << 20)
    writer.write(["words.a", 3, "words.*", large, "words.b"])
    writer.close()
    assert rejected == [3, "words.*", large]
    assert bench.values() == ["words.a", "words.b"]


def test_a_subject_that_the_stream_does_not_take_is_named(bench: NatsBench) -> None:
    with pytest.raises(PlanInvalid, match="no stream.*'others'"):
        open_sink(sink_to(bench.url, subject="others"), sink_context())
    with pytest.raises(ConnectorError, match="stream 'WORDS'.*'others'.*words.>"):
        written(sink_to(bench.url, subject=lambda word: "others", stream="WORDS"), "a")


def test_more_than_may_wait_is_told(bench: NatsBench) -> None:
    task = open_sink(sink_to(bench.url, guarantee=ONCE, max_pending_bytes=1000), sink_context())
    with pytest.raises(ConnectorError, match="more than 1000 bytes wait"):
        task.process(Bundle(["x" * 10] * 2000), 0)
    task.close()


def test_a_server_that_does_not_answer_is_outside_trouble() -> None:
    with pytest.raises(ServerUnready, match="NatsSink.*127.0.0.1") as found:
        open_sink(sink_to(f"nats://127.0.0.1:{free_port()}"), sink_context())
    assert is_outside(found.value)


def test_a_wrong_token_is_told_and_not_shown(tmp_path: Path) -> None:
    server = NatsServerProcess(tmp_path, "--auth", TOKEN)
    server.process.start()
    try:
        with pytest.raises(ConnectorError, match="check user, password, token") as found:
            open_sink(sink_to(server.url.replace("//", "//guess@")), sink_context())
        assert not is_outside(found.value)
        assert "guess" not in str(found.value)
    finally:
        server.process.stop()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"subject": "words.*"}, r"without spaces, \* and >"),
        ({"subject": lambda word: word}, "stream="),
        ({"schema": "text"}, "SerializationSchema"),
        ({"guarantee": "once"}, "DeliveryGuarantee"),
        ({"max_in_flight": 0}, "max_in_flight"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        sink_to("nats://localhost", **settings)
