"""A stream of a real NATS server as a source: positions, starts, trouble, purges, lag."""

import pickle
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import ConnectorError, PlanInvalid, RecordsLost, ServerUnready
from headgate.connectors import background
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.nats import source as nats_source
from headgate.connectors.nats.source import NatsSource, subject_matches
from headgate.control.error_classes import is_final, is_outside
from tests.connectors.kit import (
    first_split,
    opened,
    read_to_end,
    read_until,
    task_context,
)
from tests.connectors.nats.kit import TOKEN, NatsBench, NatsServerProcess
from tests.host.rig import eventually
from tests.servers import free_port


def fails(kind: type[Exception], problem: str) -> Any:
    return pytest.raises(kind, match=problem)


def texts(url: str, *subjects: str, **settings: Any) -> NatsSource:
    return NatsSource(url, "WORDS", subjects, schema=SimpleStringSchema(), **settings)


def test_messages_come_in_order_and_whole(bench: NatsBench) -> None:
    bench.add("a", "b")
    before_s = datetime.now(timezone.utc).timestamp()
    with opened(NatsSource(bench.url, "WORDS", bounded=True)) as reader:
        first, second = read_to_end(reader)
    assert (first.subject, first.sequence, first.data, first.headers) == ("words.new", 1, b"a", {})
    assert (second.sequence, second.data) == (2, b"b")
    assert abs(first.timestamp_ms - before_s * 1000) < 60_000


def test_a_new_reader_goes_on_after_the_last_record_of_the_old(bench: NatsBench) -> None:
    bench.add(*range(60))
    source = texts(bench.url)
    with opened(source) as reader:
        first = read_until(reader, lambda found: len(found) >= 1)
        position = pickle.loads(pickle.dumps(reader.position()))
    bench.add("last")
    with opened(source, position) as reader:
        rest = read_until(reader, lambda found: "last" in found)
    assert first + rest == [*map(str, range(60)), "last"]


def test_reading_begins_where_it_is_asked_to(bench: NatsBench) -> None:
    bench.add("a", "b", "c")
    for start, found in (("all", "abc"), ("last", "c"), ("new", ""), (2, "bc")):
        with opened(texts(bench.url, start=start, bounded=True)) as reader:
            assert read_to_end(reader) == list(found), start
    since = bench.call(bench.js.get_msg("WORDS", 2)).time
    if since is not None:
        with opened(texts(bench.url, start=since, bounded=True)) as reader:
            assert read_to_end(reader) == ["b", "c"]
    late = datetime(2100, 1, 1, tzinfo=timezone.utc)
    with opened(texts(bench.url, start=late, bounded=True)) as reader:
        assert read_to_end(reader) == []


def test_only_messages_of_the_subjects_come(bench: NatsBench) -> None:
    for subject in ("words.a.x", "words.b.x", "words.c.x", "words.b.y"):
        bench.add(subject, subject=subject)
    with opened(texts(bench.url, "words.b.*", bounded=True)) as reader:
        assert read_to_end(reader) == ["words.b.x", "words.b.y"]
    with opened(texts(bench.url, "words.a.*", "words.*.y", bounded=True)) as reader:
        assert read_to_end(reader) == ["words.a.x", "words.b.y"]


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.b.c", "a.b", False),
    ],
)
def test_subjects_match_as_the_server_has_it(pattern: str, subject: str, matches: bool) -> None:
    assert subject_matches(pattern, subject) is matches


def test_a_message_that_arrives_wakes_the_task(bench: NatsBench) -> None:
    woken = threading.Event()
    context = task_context()
    object.__setattr__(context, "wake", woken.set)
    with opened(texts(bench.url, start="new"), context=context) as reader:
        assert reader.poll(10) == ()
        assert reader.wait_ms() == float("inf")
        woken.clear()
        bench.add("a")
        assert woken.wait(20)
        assert read_until(reader, len) == ["a"]


def test_a_malformed_message_goes_to_the_policy(bench: NatsBench) -> None:
    bench.add("a", b"\xff", "b")
    with opened(texts(bench.url, bounded=True)) as reader, fails(ConnectorError, "sequence 2"):
        read_to_end(reader)
    rejected: list[Any] = []
    context = task_context()
    object.__setattr__(context, "malformed", lambda raw, error: rejected.append(raw.data))
    with opened(texts(bench.url, bounded=True), context=context) as reader:
        assert read_to_end(reader) == ["a", "b"]
    assert rejected == [b"\xff"]


def test_messages_that_were_purged_before_they_were_read_are_named(bench: NatsBench) -> None:
    bench.add(*range(10))
    with opened(texts(bench.url)) as reader:
        read_until(reader, lambda found: len(found) == 10)
        position = reader.position()
    bench.add(*range(10, 20))
    bench.purge(seq=11)  # only what was read
    with opened(texts(bench.url), position) as reader:
        read_until(reader, lambda found: len(found) == 10)
    bench.purge(keep=3)
    problem = "messages 11 to 17 of stream 'WORDS'.*on_purged"
    with opened(texts(bench.url), position) as reader, fails(RecordsLost, problem) as found:
        read_until(reader, len)
    assert is_final(found.value)
    with opened(texts(bench.url, on_purged="continue"), position) as reader:
        assert read_until(reader, len) == ["17", "18", "19"]


def test_a_stream_that_was_created_anew_is_named(bench: NatsBench) -> None:
    bench.add(*range(3))
    with opened(texts(bench.url)) as reader:
        read_until(reader, lambda found: len(found) == 3)
        position = reader.position()
    bench.delete()
    bench.call(bench.js.add_stream(name="WORDS", subjects=["words.>"]))
    bench.add(*"abcd")
    problem = "is not the one that was read"
    with opened(texts(bench.url), position) as reader, fails(RecordsLost, problem):
        read_until(reader, len)
    with opened(texts(bench.url, on_purged="continue"), position) as reader:
        assert read_until(reader, len) == [*"abcd"]


def test_other_subjects_that_are_removed_do_not_matter(bench: NatsBench) -> None:
    bench.add("mine", subject="words.mine")
    bench.add(*range(5), subject="words.other")
    with opened(texts(bench.url, "words.mine")) as reader:
        assert read_until(reader, len) == ["mine"]
        eventually(lambda: reader.poll(10) == () and reader.position()[0] == 6, "the position")
        position = reader.position()
    bench.purge()
    with opened(texts(bench.url, "words.mine"), position) as reader:
        bench.add("more", subject="words.mine")
        assert read_until(reader, len) == ["more"]


def test_a_slow_task_bounds_what_is_fetched_and_knows_its_lag(
    bench: NatsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "QUEUED_RECORDS", 20)
    monkeypatch.setattr(nats_source, "PULL_MESSAGES", 10)
    bench.add(*range(100))
    with opened(texts(bench.url)) as reader:
        assert reader.poll(5) == ()
        eventually(lambda: len(reader._queue) >= 20, "the queue")
        lag = reader.lag()
        assert lag is not None and lag.records == 100
        assert len(reader._queue) <= 30
        found = read_until(reader, lambda found: len(found) >= 100)
    assert found == [*map(str, range(100))]


def test_a_restarted_server_is_survived(own_server: NatsServerProcess) -> None:
    bench = NatsBench(own_server)
    bench.add("a")
    with opened(texts(own_server.url)) as reader:
        assert read_until(reader, len) == ["a"]
        bench.close()
        own_server.process.kill()
        own_server.process.start()
        bench = NatsBench(own_server)
        bench.add("b")
        assert read_until(reader, len) == ["b"]
    bench.close()


def test_a_server_that_does_not_answer_is_outside_trouble() -> None:
    with fails(ServerUnready, "NatsSource.*127.0.0.1") as found:
        first_split(texts(f"nats://secret@127.0.0.1:{free_port()}"))
    assert is_outside(found.value)
    assert "secret" not in str(found.value)


def test_a_wrong_token_is_told_and_not_shown(tmp_path: Path) -> None:
    server = NatsServerProcess(tmp_path, "--auth", TOKEN)
    server.process.start()
    try:
        for user in ("", "guess@"):
            with fails(ConnectorError, "check user, password, token") as found:
                first_split(texts(server.url.replace("//", f"//{user}")))
            assert not is_outside(found.value)
            assert "guess" not in str(found.value)
    finally:
        server.process.stop()


def test_a_missing_stream_is_named(bench: NatsBench) -> None:
    with fails(PlanInvalid, "no stream 'OTHERS'"):
        first_split(NatsSource(bench.url, "OTHERS"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"servers": "http://localhost"}, "nats://"),
        ({"servers": []}, "no servers"),
        ({"stream": "a.b"}, "give its name"),
        ({"start": "yesterday"}, "start is 'yesterday'"),
        ({"start": 0}, "start is 0"),
        ({"on_purged": "ignore"}, "on_purged"),
        ({"schema": "text"}, "DeserializationSchema"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    with fails(PlanInvalid, problem):
        NatsSource(**{"servers": "nats://localhost", "stream": "WORDS", **settings})
