"""Streams of a real Redis server as a source: positions, trouble, trimming, lag."""

import pickle
import threading
from typing import Any

import pytest

from headgate.base.errors import ConnectorError, PlanInvalid, RecordsLost, ServerUnready
from headgate.connectors import background
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.redis import source as redis_source
from headgate.connectors.redis.source import RedisStreamSource
from headgate.control.error_classes import is_final, is_outside
from tests.connectors.kit import (
    first_split,
    opened,
    read_to_end,
    read_until,
    task_context,
)
from tests.connectors.redis.kit import PASSWORD, RedisBench, RedisServerProcess
from tests.host.rig import eventually
from tests.servers import free_port


def fails(kind: type[Exception], problem: str) -> Any:
    return pytest.raises(kind, match=problem)


def texts(url: str, stream: str = "words", **settings: Any) -> RedisStreamSource:
    return RedisStreamSource(url, stream, schema=SimpleStringSchema(), **settings)


def test_entries_come_in_order_with_the_times_of_their_ids(bench: RedisBench) -> None:
    bench.client.xadd("words", {"value": "a"}, id="1000-0")
    bench.client.xadd("words", {"value": "b"}, id="2000-5")
    with opened(texts(bench.url, bounded=True)) as reader:
        found = None
        while not found:
            found = reader.poll(10)
        assert found.records == ["a", "b"]
        assert list(found.timestamps) == [1000, 2000]
        assert read_to_end(reader) == []


def test_without_a_schema_records_are_whole_entries(bench: RedisBench) -> None:
    bench.client.xadd("words", {"item": "tea", "price": 5}, id="7-1")
    with opened(RedisStreamSource(bench.url, "words", bounded=True)) as reader:
        assert read_to_end(reader) == [("words", "7-1", {"item": "tea", "price": "5"})]
    with opened(RedisStreamSource(bench.url, "words", bounded=True, text=False)) as reader:
        assert read_to_end(reader) == [("words", "7-1", {b"item": b"tea", b"price": b"5"})]


def test_a_new_reader_goes_on_after_the_last_record_of_the_old(bench: RedisBench) -> None:
    bench.add("words", *range(2500))
    source = texts(bench.url)
    with opened(source) as reader:
        first = read_until(reader, lambda found: len(found) >= 1000)
        position = pickle.loads(pickle.dumps(reader.position()))
    bench.add("words", "last")
    with opened(source, position) as reader:
        rest = read_until(reader, lambda found: "last" in found)
    assert first + rest == [*map(str, range(2500)), "last"]


def test_a_reader_that_has_read_nothing_keeps_the_start_of_the_job(bench: RedisBench) -> None:
    bench.add("words", "before")
    source = texts(bench.url, start="$")
    with opened(source) as reader:
        assert reader.poll(10) == ()
        position = reader.position()
    bench.add("words", "between")
    with opened(source, position) as reader:
        assert read_until(reader, len) == ["between"]


def test_reading_begins_after_a_given_id_and_stops_where_the_stream_ended(
    bench: RedisBench,
) -> None:
    ids = bench.add("words", *"abcd")
    source = texts(bench.url, start=ids[1].decode(), bounded=True)
    split = first_split(source)
    bench.add("words", "too late")
    with opened(source, split=split) as reader:
        assert read_to_end(reader) == ["c", "d"]


def test_a_bounded_source_of_a_missing_stream_ends(bench: RedisBench) -> None:
    with opened(texts(bench.url, bounded=True)) as reader:
        assert read_to_end(reader) == []


def test_streams_added_to_a_restored_job_are_read_from_their_beginning(bench: RedisBench) -> None:
    bench.add("words", "old")
    bench.add("more", "new")
    source = RedisStreamSource(bench.url, ["words", "more"], start="$", bounded=True)
    (split,) = source.create_enumerator(1, ["words"]).discover()
    with opened(source, split=split) as reader:
        assert [entry.fields["value"] for entry in read_to_end(reader)] == ["new"]


def test_an_entry_that_arrives_wakes_the_task(bench: RedisBench) -> None:
    woken = threading.Event()
    context = task_context()
    object.__setattr__(context, "wake", woken.set)
    with opened(texts(bench.url), context=context) as reader:
        assert reader.poll(10) == ()
        assert reader.wait_ms() == float("inf")
        woken.clear()
        bench.add("words", "a")
        assert woken.wait(20)
        assert read_until(reader, len) == ["a"]


def test_a_malformed_entry_goes_to_the_policy_and_the_rest_is_read(bench: RedisBench) -> None:
    bench.add("words", "a", b"\xff")
    bench.client.xadd("words", {"other": "x"})
    bench.add("words", "b")
    rejected: list[tuple[object, str]] = []
    context = task_context()
    take = lambda raw, error: rejected.append((raw[1], str(error)))  # noqa: E731
    object.__setattr__(context, "malformed", take)
    with opened(texts(bench.url, bounded=True), context=context) as reader:
        assert read_to_end(reader) == ["a", "b"]
    (undecodable, _), (_, nameless) = rejected
    assert undecodable == {b"value": b"\xff"}
    assert "stream 'words'" in nameless and "no field 'value'" in nameless


def test_a_malformed_entry_fails_without_a_policy(bench: RedisBench) -> None:
    bench.add("words", b"\xff")
    problem = "cannot be read: UnicodeDecodeError"
    with opened(texts(bench.url, bounded=True)) as reader, fails(ConnectorError, problem):
        read_to_end(reader)


def test_entries_that_were_trimmed_before_they_were_read_are_named(
    bench: RedisBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add("words", *range(10))
    with opened(texts(bench.url)) as reader:
        read_until(reader, lambda found: len(found) == 10)
        position = reader.position()
    bench.add("words", *range(10, 20))
    bench.client.xtrim("words", maxlen=10, approximate=False)
    with opened(texts(bench.url), position) as reader:  # only what was read is gone
        read_until(reader, lambda found: len(found) == 10)
    bench.client.xtrim("words", maxlen=3, approximate=False)
    problem = "7 entries of stream 'words'.*on_trimmed"
    with opened(texts(bench.url), position) as reader, fails(RecordsLost, problem) as found:
        read_until(reader, len)
    assert is_final(found.value)
    with opened(texts(bench.url, on_trimmed="continue"), position) as reader:
        assert read_until(reader, len) == ["17", "18", "19"]
    (line,) = caplog.messages
    assert "7 entries of stream 'words' of" in line
    assert "are gone and were not read" in line


def test_a_stream_that_was_begun_anew_is_named(bench: RedisBench) -> None:
    bench.add("words", *range(10))
    with opened(texts(bench.url)) as reader:
        read_until(reader, lambda found: len(found) == 10)
        position = reader.position()
    bench.client.delete("words")
    bench.add("words", "new")
    problem = "is not the one that was read"
    with opened(texts(bench.url), position) as reader, fails(RecordsLost, problem):
        read_until(reader, len)
    with opened(texts(bench.url, on_trimmed="continue"), position) as reader:
        assert read_until(reader, len) == ["new"]


def test_a_stream_that_was_trimmed_before_the_job_is_read_from_what_is_left(
    bench: RedisBench,
) -> None:
    bench.add("words", *range(10))
    bench.client.xtrim("words", maxlen=2, approximate=False)
    bench.client.xdel("words", bench.add("words", "deleted")[0])
    with opened(texts(bench.url, bounded=True)) as reader:
        assert read_to_end(reader) == ["8", "9"]


def test_a_slow_task_bounds_what_is_fetched_and_knows_its_lag(
    bench: RedisBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "QUEUED_RECORDS", 20)
    monkeypatch.setattr(redis_source, "FETCH_ENTRIES", 10)
    monkeypatch.setattr(redis_source, "LOOK_S", 0.05)
    bench.add("words", *range(100))
    with opened(texts(bench.url)) as reader:
        assert reader.poll(5) == ()
        eventually(lambda: len(reader._queue) >= 20, "the queue")
        first = read_until(reader, len)
        bench.add("words", "last")
        eventually(lambda: reader.lag().records == 101 - len(first), "the lag")
        assert len(reader._queue) <= 30
        rest = read_until(reader, lambda found: "last" in found)
    assert len(first) + len(rest) == 101


def test_a_lost_connection_and_a_restarted_server_are_survived(
    own_server: RedisServerProcess,
) -> None:
    bench = RedisBench(own_server)
    bench.add("words", "a")
    with opened(texts(own_server.url)) as reader:
        assert read_until(reader, len) == ["a"]
        assert bench.end_others() > 0
        bench.add("words", "b")
        assert read_until(reader, len) == ["b"]
        bench.close()
        own_server.process.restart()
        bench = RedisBench(own_server)
        bench.add("words", "c")
        assert read_until(reader, len) == ["c"]
    bench.close()


def test_a_server_that_does_not_answer_is_outside_trouble() -> None:
    with pytest.raises(ServerUnready, match="RedisStreamSource.*127.0.0.1") as found:
        first_split(texts(f"redis://:secret@127.0.0.1:{free_port()}/0"))
    assert is_outside(found.value)
    assert "secret" not in str(found.value)


def test_wrong_passwords_are_told_and_not_shown(bench: RedisBench) -> None:
    bench.client.config_set("requirepass", PASSWORD)
    try:
        for user in ("", ":wrong%20guess@"):
            url = bench.url.replace("redis://", f"redis://{user}")
            with pytest.raises(ConnectorError, match="check user, password") as found:
                first_split(texts(url))
            assert not is_outside(found.value)
            assert "guess" not in str(found.value)
    finally:
        bench.client.config_set("requirepass", "")


def test_a_key_that_holds_no_stream_is_named(bench: RedisBench) -> None:
    bench.client.set("words", "x")
    with pytest.raises(ConnectorError, match="'words'.*WRONGTYPE.*key of a stream"):
        first_split(texts(bench.url))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://localhost"}, "redis://"),
        ({"url": "redis://localhost?decode_responses=yes"}, "decode_responses"),
        ({"streams": []}, "key of a stream"),
        ({"streams": ["a", "a"]}, "twice"),
        ({"start": "yesterday"}, "start is 'yesterday'"),
        ({"on_trimmed": "ignore"}, "on_trimmed"),
        ({"schema": "text"}, "DeserializationSchema"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        RedisStreamSource(**{"url": "redis://localhost", "streams": "words", **settings})
