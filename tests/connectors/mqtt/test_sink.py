"""Topics of a real broker as a sink: order, acknowledgements, trouble."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnready
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.mqtt.sink import MqttSink
from headgate.control.error_classes import is_outside
from tests.connectors.kit import CancelledTask
from tests.connectors.mqtt.kit import PASSWORD, MosquittoProcess, MqttBench, password_file
from tests.core.chain.sink_lab import sink_context
from tests.servers import free_port

EACH_QOS = pytest.mark.parametrize("qos", [1, 2])
REFUSED = "user ann\ntopic write mine/#\n"


def sink_to(url: str, **settings: Any) -> MqttSink:
    return MqttSink(url, **{"topic": "copy/a", "schema": SimpleStringSchema(), **settings})


def written(sink: MqttSink, *records: object) -> None:
    """By one task, with one checkpoint."""
    writer = sink.create_writer(sink_context())
    try:
        writer.write(list(records))
        writer.flush()
    finally:
        writer.close()


@EACH_QOS
def test_records_become_messages_in_order(bench: MqttBench, qos: int) -> None:
    words = [f"word {number}" for number in range(1200)]
    written(sink_to(bench.url, qos=qos), *words)
    assert bench.words(1200) == words


def test_a_function_chooses_the_topic_and_the_broker_keeps_the_last(bench: MqttBench) -> None:
    sink = sink_to(bench.url, topic=lambda word: f"copy/{word}", retain=True)
    written(sink, "x", "y")
    late = MqttBench(bench.url, "copy/#")
    late.words(2)
    assert {(each.topic, each.retain) for each in late.received} == {
        ("copy/x", True),
        ("copy/y", True),
    }
    late.publish("", topic="copy/x", retain=True)
    late.publish("", topic="copy/y", retain=True)
    late.close()


@EACH_QOS
def test_a_checkpoint_waits_for_a_broker_that_is_restarted(
    own_broker: MosquittoProcess, qos: int
) -> None:
    writer = sink_to(own_broker.url, qos=qos).create_writer(sink_context())
    writer.write(["a"])
    own_broker.process.restart()
    bench = MqttBench(own_broker.url, "copy/#")
    writer.write(["b", "c"])
    writer.flush()
    writer.close()
    assert bench.words(2)[-2:] == ["b", "c"]
    bench.close()


def test_a_cancelled_task_does_not_wait_for_a_broker_that_hangs(
    own_broker: MosquittoProcess,
) -> None:
    task = CancelledTask()
    writer = sink_to(own_broker.url).create_writer(task.context)
    own_broker.process.signal(signal.SIGSTOP)
    try:
        writer.write(["a"])
        began_s = time.monotonic()
        task.cancel_while(writer.flush)
        assert time.monotonic() - began_s < 5
    finally:
        own_broker.process.signal(signal.SIGCONT)
        writer.close()


def test_records_without_a_topic_go_to_the_policy(bench: MqttBench) -> None:
    context = sink_context()
    rejected: list[object] = []
    object.__setattr__(context, "malformed", lambda record, error: rejected.append(record))
    writer = sink_to(bench.url, topic=lambda word: word).create_writer(context)
    writer.write(["copy/a", "all/#", "", "copy/b"])
    writer.flush()
    writer.close()
    assert rejected == ["all/#", ""]
    assert bench.words(2) == ["copy/a", "copy/b"]


def test_a_broker_that_does_not_answer_is_outside_trouble() -> None:
    url = f"mqtt://ann:secret@127.0.0.1:{free_port()}"
    with pytest.raises(ServerUnready, match=r"MqttSink: sink '.*127.0.0.1.*address") as found:
        written(sink_to(url))
    assert is_outside(found.value)
    assert "secret" not in str(found.value)


def test_a_denied_login_and_a_denied_topic_are_told(tmp_path: Path) -> None:
    rights = tmp_path / "rights"
    rights.write_text(REFUSED)
    rights.chmod(0o600)
    settings = (f"password_file {password_file(tmp_path)}", f"acl_file {rights}")
    server = MosquittoProcess(tmp_path, *settings)
    server.process.start()
    try:
        with pytest.raises(ConnectorError, match="Not authorized; check user and password"):
            written(sink_to(server.url))
        url = server.url.replace("//", f"//ann:{PASSWORD.replace('/', '%2F')}@")
        with pytest.raises(ConnectorError, match="topic 'copy/a': Not authorized; check user"):
            written(sink_to(url), "a")
        written(sink_to(url, topic="mine/a"), "a")
    finally:
        server.process.stop()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "localhost:1883"}, "mqtt://"),
        ({"topic": "a/#"}, r"topic is 'a/#'; give a topic without \+ and #, or a function"),
        ({"schema": "text"}, "schema is 'text'; give a SerializationSchema"),
        ({"qos": 0}, "qos is 0; give one of 1, 2"),
        ({"retain": 1}, "retain is 1; give True or False"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        sink_to(**{"url": "mqtt://localhost", **settings})
