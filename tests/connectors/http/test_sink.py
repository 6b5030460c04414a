"""Records sent to a real HTTP server: batches, retries, keys, rejections, kills."""

import http.client
import ssl
import threading
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, HttpRejected, PlanInvalid, ServerUnready
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.http.poster import HttpLimits, retry_after_s
from headgate.connectors.http.sink import HttpBatching, HttpSink
from headgate.control.error_classes import is_outside
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.http.kit import HANG_UP, Endpoint
from tests.connectors.kill_kit import RECORDS, killed_at_each_step
from tests.connectors.once_kit import go_back_twice, number_job, restore_rescale_and_wake, written
from tests.core.chain.sink_lab import SinkJob, open_sink, sink_context
from tests.host.certificates import Authority
from tests.host.rig import eventually
from tests.servers import free_port

ONCE = DeliveryGuarantee.EXACTLY_ONCE
SECRET = "Bearer open-sesame"
BOTH = pytest.mark.parametrize("guarantee", [ONCE, DeliveryGuarantee.AT_LEAST_ONCE])


def sink_to(url: str, **settings: Any) -> HttpSink:
    limits = {"retry_s": 5.0, **settings.pop("limits", {})}
    batching = {"linger_ms": 60_000.0, **settings.pop("batching", {})}
    return HttpSink(
        url,
        SimpleStringSchema(),
        limits=HttpLimits(**limits),
        batching=HttpBatching(**batching),
        headers={"Authorization": SECRET},
        **settings,
    )


@BOTH
def test_records_come_in_batches_in_order(endpoint: Endpoint, guarantee: DeliveryGuarantee) -> None:
    sink = sink_to(endpoint.url, guarantee=guarantee, batching={"records": 3})
    written(sink, *"abcdefgh")
    assert [body for _, body in endpoint.requests] == [b"a\nb\nc\n", b"d\ne\nf\n", b"g\nh\n"]
    headers, _ = endpoint.requests[0]
    assert headers["authorization"] == SECRET
    assert headers["content-type"] == "application/x-ndjson"
    assert set(endpoint.keys().values()) == {1}


@BOTH
def test_batches_are_bounded_by_bytes(endpoint: Endpoint, guarantee: DeliveryGuarantee) -> None:
    sink = sink_to(endpoint.url, guarantee=guarantee, batching={"bytes": 10}, body="joined")
    written(sink, "aaaa", "bbbb", "cccc", "d" * 20, "e")
    assert [body for _, body in endpoint.requests] == [b"aaaabbbb", b"cccc", b"d" * 20, b"e"]


@pytest.mark.parametrize(
    ("body", "found"),
    [("array", b"[1,2]"), ("joined", b"12"), (lambda parts: b"+".join(parts), b"1+2")],
)
def test_a_body_is_made_as_it_is_asked_for(endpoint: Endpoint, body: Any, found: bytes) -> None:
    written(sink_to(endpoint.url, body=body, method="PUT"), "1", "2")
    ((_, sent),) = endpoint.requests
    assert sent == found


def test_a_batch_that_is_not_full_is_sent_when_it_is_old(endpoint: Endpoint) -> None:
    task = open_sink(sink_to(endpoint.url, batching={"linger_ms": 30.0}), sink_context())
    task.process(Bundle(["a"]), 0)
    eventually(lambda: endpoint.lines() == ["a"], "the batch")
    task.process(Bundle(["b"]), 0)
    eventually(lambda: endpoint.lines() == ["a", "b"], "the batch")
    task.close()


def test_exactly_once_batches_are_sent_after_the_checkpoint(endpoint: Endpoint) -> None:
    task = open_sink(sink_to(endpoint.url, guarantee=ONCE), sink_context())
    task.process(Bundle(["a"]), 0)
    task.before_barrier(SnapshotMoment(1, 0))
    task.snapshot(SnapshotMoment(1, 0))
    assert endpoint.requests == []
    task.checkpoint_completed(1)
    task.close()
    assert endpoint.lines() == ["a"]


@BOTH
@pytest.mark.parametrize("trouble", [(429, {}, b""), (502, {}, b""), (503, {}, b""), HANG_UP])
def test_a_batch_is_sent_again_with_the_same_key(
    endpoint: Endpoint, guarantee: DeliveryGuarantee, trouble: Any
) -> None:
    endpoint.answers = [trouble, trouble]
    written(sink_to(endpoint.url, guarantee=guarantee), "a", "b")
    assert list(endpoint.keys().values()) == [3]
    assert endpoint.lines() == ["a", "b"]


def test_a_conflict_is_an_attempt_that_is_still_at_work(endpoint: Endpoint) -> None:
    endpoint.answers = [HANG_UP, (409, {}, b"in progress")]
    written(sink_to(endpoint.url), "a")
    assert list(endpoint.keys().values()) == [3]
    endpoint.answers = [(409, {}, b"no such version")]
    with pytest.raises(HttpRejected, match="status 409"):
        written(sink_to(endpoint.url), "b")


def test_an_endpoint_says_how_long_to_wait() -> None:
    assert retry_after_s("7", 0.0) == 7.0
    assert retry_after_s(formatdate(1_000_060, usegmt=True), 1_000_000.0) == 60.0
    assert retry_after_s("soon", 0.0) == retry_after_s(None, 0.0) == retry_after_s("-5", 0.0) == 0.0


def test_to_wait_for_longer_than_may_be_is_outside_trouble(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, {"Retry-After": "3600"}, b"maintenance")]
    with pytest.raises(ServerUnready, match="1 attempt: status 503: 'maintenance'") as found:
        written(sink_to(endpoint.url), "a")
    assert is_outside(found.value)


@BOTH
def test_a_server_that_does_not_answer_is_outside_trouble(guarantee: DeliveryGuarantee) -> None:
    url = f"http://127.0.0.1:{free_port()}/events?token=hidden"
    with pytest.raises(ServerUnready, match="sink 'out'.*127.0.0.1.*refused") as found:
        written(sink_to(url, guarantee=guarantee, limits={"retry_s": 0.1}), "a")
    assert is_outside(found.value)
    assert "hidden" not in repr(found.value) and "sesame" not in repr(found.value)


@BOTH
def test_a_server_that_takes_too_long_is_outside_trouble(
    endpoint: Endpoint, guarantee: DeliveryGuarantee
) -> None:
    endpoint.open_gate.clear()
    limits = {"retry_s": 0.1, "timeout_s": 0.1}
    with pytest.raises(ServerUnready, match="ReadTimeout"):
        written(sink_to(endpoint.url, guarantee=guarantee, limits=limits), "a")


@BOTH
def test_wrong_credentials_are_told_and_not_shown(
    endpoint: Endpoint, guarantee: DeliveryGuarantee
) -> None:
    endpoint.answers = [(401, {}, b"who are you?")]
    with pytest.raises(ConnectorError, match="status 401: 'who are you\\?'.*headers") as found:
        written(sink_to(endpoint.url, guarantee=guarantee), "a")
    assert not is_outside(found.value)
    assert "sesame" not in repr(found.value)


@pytest.mark.parametrize("status", [302, 403, 404, 500])
def test_an_answer_that_any_batch_would_get_fails_the_job_under_any_policy(
    endpoint: Endpoint, status: int
) -> None:
    endpoint.answers = [(status, {"Location": endpoint.url}, b"")]
    context = sink_context()
    rejected: list[object] = []
    object.__setattr__(context, "malformed", lambda record, error: rejected.append(record))
    writer = sink_to(endpoint.url).create_writer(context)
    writer.write(["a"])
    with pytest.raises(ConnectorError, match=f"status {status}") as found:
        writer.flush()
    writer.close()
    assert is_outside(found.value) is (status == 500)
    assert rejected == []
    assert len(endpoint.requests) == 1


def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "authority")
    identity = authority.issue("collector")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(identity.certificate, identity.key)
    endpoint = Endpoint(tls)
    try:
        with pytest.raises(ConnectorError, match="certificate.*not accepted.*trust") as found:
            written(sink_to(endpoint.url), "a")
        assert not is_outside(found.value)
        monkeypatch.setenv("SSL_CERT_FILE", authority.path)
        written(sink_to(endpoint.url), "a")
        assert endpoint.lines() == ["a"]
    finally:
        endpoint.close()


def test_a_rejected_batch_goes_to_the_policy_and_the_rest_is_sent(endpoint: Endpoint) -> None:
    endpoint.answers = [(422, {}, b"bad event" + b"!" * 1000)]
    context = sink_context()
    rejected: list[tuple[object, str]] = []
    take = lambda record, error: rejected.append((record, str(error)))  # noqa: E731
    object.__setattr__(context, "malformed", take)
    writer = sink_to(endpoint.url, batching={"records": 2}).create_writer(context)
    writer.write(["a", "b", 3, "c", "d"])
    writer.flush()
    writer.close()
    assert [record for record, _ in rejected] == [3, "a", "b"]
    assert "status 422: 'bad event!!!" in rejected[1][1] and len(rejected[1][1]) < 500
    assert endpoint.lines() == ["c", "d"]


def test_a_slow_server_holds_the_task_up(endpoint: Endpoint) -> None:
    endpoint.open_gate.clear()
    sink = sink_to(endpoint.url, batching={"records": 1}, limits={"in_flight": 2})
    task = open_sink(sink, sink_context())
    done = threading.Event()

    def write() -> None:
        task.process(Bundle([str(number) for number in range(20)]), 0)
        done.set()

    writing = threading.Thread(target=write)
    writing.start()
    eventually(lambda: endpoint.at_once == 2, "two requests")
    assert not done.wait(0.1)
    endpoint.open_gate.set()
    writing.join()
    task.snapshot(SnapshotMoment(1, 0))
    task.close()
    assert sorted(endpoint.lines(), key=int) == [str(number) for number in range(20)]
    assert endpoint.at_once == 2


def test_commits_may_have_several_requests_under_way(endpoint: Endpoint) -> None:
    limits = {"in_flight": 4}
    sink = sink_to(endpoint.url, guarantee=ONCE, batching={"records": 1}, limits=limits)
    written(sink, *map(str, range(20)))
    assert sorted(endpoint.lines(), key=int) == [str(number) for number in range(20)]
    endpoint.answers = [(400, {}, b"no")]
    with pytest.raises(HttpRejected):
        written(sink, *map(str, range(20)))


def once(server: Endpoint) -> SinkJob:
    return number_job(sink_to(server.url, guarantee=ONCE), server.lines)


def test_keys_stay_the_same_over_restores_and_rescaling(endpoint: Endpoint) -> None:
    restore_rescale_and_wake(once(endpoint))
    assert max(endpoint.keys().values()) > 1


def test_a_savepoint_with_pending_commits_may_be_gone_back_to_twice(endpoint: Endpoint) -> None:
    go_back_twice(once(endpoint))


def test_a_kill_between_any_two_steps_neither_loses_nor_repeats_a_record(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    def check(step: int) -> None:
        assert endpoint.lines() == [str(n) for n in range(RECORDS)], f"killed at step {step}"
        endpoint.taken.clear()

    connection = http.client.HTTPConnection
    patches = [(connection, "connect"), (connection, "endheaders"), (connection, "getresponse")]
    sink = sink_to(endpoint.url, guarantee=ONCE)
    assert killed_at_each_step(sink, tmp_path, patches, check) > 6


def test_more_than_may_wait_is_told(endpoint: Endpoint) -> None:
    sink = sink_to(endpoint.url, guarantee=ONCE, limits={"pending_bytes": 1000})
    task = open_sink(sink, sink_context())
    with pytest.raises(ConnectorError, match="more than 1000 bytes wait"):
        task.process(Bundle(["x" * 10] * 2000), 0)
    task.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "ftp://host/"}, "http://"),
        ({"url": "https://ada:secret@host/"}, "Authorization"),
        ({"schema": "text"}, "SerializationSchema"),
        ({"method": "GET"}, "method is 'GET'"),
        ({"body": "xml"}, "body is 'xml'"),
        ({"guarantee": "once"}, "DeliveryGuarantee"),
        ({"headers": {"X": "a\nb"}}, "header 'X'"),
    ],
)
def test_a_wrong_setting_is_told_when_the_program_is_written(
    settings: dict[str, Any], problem: str
) -> None:
    given = {"url": "https://host/", "schema": SimpleStringSchema(), **settings}
    with pytest.raises(PlanInvalid, match=problem) as found:
        HttpSink(**given)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("kind", [HttpLimits, HttpBatching])
def test_a_limit_that_is_none_is_told(kind: type) -> None:
    for name in vars(kind()):
        with pytest.raises(PlanInvalid, match=name):
            kind(**{name: 0})
