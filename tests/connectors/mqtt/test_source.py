"""Topics of a real broker as a source: acknowledgements, sessions, bounds, trouble."""

import time
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnfit, ServerUnready
from headgate.connectors import background
from headgate.connectors.background import AcknowledgingReader
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.mqtt import client
from headgate.connectors.mqtt.source import MqttMessage, MqttSource
from headgate.control.error_classes import is_outside
from headgate.functions.context import SnapshotMoment
from tests.connectors.kit import nothing_leaks, read_some, read_until
from tests.connectors.mqtt.kit import (
    PASSWORD,
    MosquittoProcess,
    MqttBench,
    opened,
    password_file,
    texts,
)
from tests.host.rig import eventually
from tests.servers import free_port

EACH_QOS = pytest.mark.parametrize("qos", [1, 2])


def fails(kind: type[Exception], problem: str) -> Any:
    return pytest.raises(kind, match=problem)


def checkpoint(reader: AcknowledgingReader, number: int) -> None:
    reader.position_at(SnapshotMoment(number, 0))
    reader.checkpoint_completed(number)


def test_messages_come_whole(bench: MqttBench) -> None:
    source = texts(bench.url, ["some/+/words", "more/#"], schema=None, qos=2)
    with opened(source) as reader:
        bench.publish("a", topic="some/new/words", qos=2)
        bench.publish("b", topic="other")
        bench.publish("c", topic="more/of/it", qos=0)
        assert read_until(reader, lambda found: len(found) == 2) == [
            MqttMessage("some/new/words", b"a", 2, False, ()),
            MqttMessage("more/of/it", b"c", 0, False, ()),
        ]


@EACH_QOS
def test_a_message_comes_again_until_a_checkpoint_that_covers_it_has_completed(
    bench: MqttBench, qos: int
) -> None:
    source = texts(bench.url, qos=qos)
    with opened(source) as reader:
        bench.publish("a", "b", qos=qos)
        assert read_until(reader, lambda found: len(found) == 2) == ["a", "b"]
        reader.position_at(SnapshotMoment(1, 0))
    with opened(source) as reader:
        assert read_until(reader, lambda found: len(found) == 2) == ["a", "b"]
        reader.position_at(SnapshotMoment(1, 0))
        bench.publish("c", qos=qos)
        assert read_until(reader, len) == ["c"]
        reader.position_at(SnapshotMoment(2, 0))
        reader.checkpoint_completed(1)
    bench.publish("while away", qos=qos)
    with opened(source) as reader:
        assert read_until(reader, lambda found: len(found) == 2) == ["c", "while away"]
        checkpoint(reader, 3)
    with opened(source) as reader:
        bench.publish("last", qos=qos)
        assert read_until(reader, len) == ["last"]


@EACH_QOS
def test_the_broker_waits_when_so_many_messages_are_not_covered(bench: MqttBench, qos: int) -> None:
    with opened(texts(bench.url, qos=qos, receive_maximum=5)) as reader:
        bench.publish(*range(12), qos=qos)
        found = read_until(reader, lambda found: len(found) == 5)
        time.sleep(0.3)
        assert read_some(reader) == []
        checkpoint(reader, 1)
        while len(found) < 12:
            found += read_until(reader, len)
            checkpoint(reader, len(found))
        assert found == [*map(str, range(12))]


def test_without_checkpoints_messages_are_acknowledged_when_they_were_handed_on(
    bench: MqttBench,
) -> None:
    with opened(texts(bench.url, receive_maximum=5), checkpoints=False) as reader:
        bench.publish(*range(30))
        found = read_until(reader, lambda found: len(found) == 30)
    assert found == [*map(str, range(30))]


def test_a_queue_that_is_full_makes_the_connection_wait(
    bench: MqttBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "QUEUED_RECORDS", 10)
    monkeypatch.setattr(client, "TURN_PACKETS", 10)
    with opened(texts(bench.url)) as reader:
        bench.publish(*range(100))
        eventually(lambda: len(reader._queue) >= 10, "the queue")
        assert len(reader._queue) <= 20
        found = read_until(reader, lambda found: len(found) >= 100)
    assert found == [*map(str, range(100))]


@EACH_QOS
def test_a_message_that_is_not_acknowledged_is_known_when_it_comes_again(
    own_broker: MosquittoProcess, qos: int
) -> None:
    bench = MqttBench(own_broker.url)
    source = texts(own_broker.url, qos=qos)
    with opened(source) as reader:
        bench.publish("a", "b", qos=qos)
        assert read_until(reader, lambda found: len(found) == 2) == ["a", "b"]
        reader.position_at(SnapshotMoment(1, 0))
        bench.close()
        own_broker.process.restart()
        bench = MqttBench(own_broker.url)
        bench.publish("c", qos=qos)
        assert read_until(reader, len) == ["c"]
        reader.checkpoint_completed(1)  # the messages have come over another connection since
        checkpoint(reader, 2)
    with opened(source) as reader:
        bench.publish("d", qos=qos)
        assert read_until(reader, len) == ["d"]
    bench.close()


def test_ids_of_a_lost_session_stand_for_nothing(own_broker: MosquittoProcess) -> None:
    bench = MqttBench(own_broker.url)
    source = texts(own_broker.url)
    with opened(source) as reader:
        bench.publish("a", "b")
        assert read_until(reader, lambda found: len(found) == 2) == ["a", "b"]
        reader.position_at(SnapshotMoment(1, 0))
        bench.close()
        own_broker.process.kill()  # it has not written its sessions
        for path in own_broker.folder.glob("mosquitto.db*"):
            path.unlink()
        before = own_broker.subscriptions(source.client_id)
        own_broker.process.start()
        eventually(lambda: own_broker.subscriptions(source.client_id) > before, "a new session")
        bench = MqttBench(own_broker.url)
        bench.publish("c")
        assert read_until(reader, len) == ["c"]
        reader.checkpoint_completed(1)
    with opened(source) as reader:
        assert read_until(reader, len) == ["c"]
    bench.close()


def test_a_malformed_message_goes_to_the_policy(bench: MqttBench) -> None:
    rejected: list[Any] = []
    source = texts(bench.url, schema=SimpleStringSchema("ascii"))
    with opened(source, malformed=lambda raw, error: rejected.append((raw, error))) as reader:
        bench.publish("a", "ä", "b")
        assert read_until(reader, lambda found: len(found) == 2) == ["a", "b"]
    ((raw, error),) = rejected
    assert raw.payload == "ä".encode()
    assert "the message at id 2 cannot be read" in str(error)


def test_two_sources_of_one_client_id_are_told(
    bench: MqttBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "RECONNECT_S", 1.0)
    source = texts(bench.url)
    problem = "is the client id that of others"
    with opened(source) as first, opened(source) as second, fails(ServerUnready, problem):
        eventually(lambda: read_some(first) or read_some(second), "the end of one of them")


def test_a_broker_that_does_not_answer_is_outside_trouble() -> None:
    with (
        nothing_leaks(),
        fails(ServerUnready, "MqttSource: connecting: 127.0.0.1.*check the address") as found,
        opened(texts(f"mqtt://ann:secret@127.0.0.1:{free_port()}")),
    ):
        pass
    assert is_outside(found.value)
    assert "secret" not in str(found.value)


def test_wrong_credentials_are_told_and_not_shown(tmp_path: Path) -> None:
    server = MosquittoProcess(tmp_path, f"password_file {password_file(tmp_path)}")
    server.process.start()
    try:
        for login in ("", "ann:guess@", "eve:guess@"):
            url = server.url.replace("//", f"//{login}")
            with (
                nothing_leaks(),
                fails(ConnectorError, "Not authorized; check user and password") as found,
                opened(texts(url)),
            ):
                pass
            assert not is_outside(found.value)
            assert "guess" not in str(found.value)
        login = f"ann:{PASSWORD.replace('/', '%2F')}@"
        with opened(texts(server.url.replace("//", f"//{login}"))):
            pass
    finally:
        server.process.stop()


def test_a_broker_that_grants_no_acknowledgements_is_told(tmp_path: Path) -> None:
    server = MosquittoProcess(tmp_path, "allow_anonymous true", "max_qos 0")
    server.process.start()
    try:
        with fails(ServerUnfit, "grants QoS 0 only"), opened(texts(server.url)) as reader:
            read_until(reader, len)
    finally:
        server.process.stop()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://localhost"}, "mqtt:// or mqtts://; give one such as mqtt://localhost"),
        ({"topics": []}, "topics is.*give topic filters"),
        ({"topics": "a/#/b"}, "topics is.*give topic filters"),
        ({"topics": "a/b+"}, "topics is.*give topic filters"),
        ({"topics": [""]}, "topics is.*give topic filters"),
        ({"client_id": ""}, "client_id is ''; give a text"),
        ({"qos": 0}, "qos is 0; give one of 1, 2"),
        ({"receive_maximum": 65_536}, "receive_maximum is 65536; give a whole number from 1 to"),
        ({"session_expiry_s": 0}, "session_expiry_s is 0; give a whole number above 0"),
        ({"schema": "text"}, "DeserializationSchema"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    given = {"url": "mqtt://localhost", "topics": "a", "client_id": "me", **settings}
    with fails(PlanInvalid, problem):
        MqttSource(**given)
