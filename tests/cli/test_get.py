"""``headgate get``: values on standard output, what is missing on standard error."""

import json
from collections.abc import Iterator

import pytest

from headgate.host.driver.control_server import ControlServer
from tests.cli.kit import Headgate
from tests.host.control_rig import TIMES
from tests.host.endpoint_kit import RecordingJob, served_endpoint


@pytest.fixture
def job(headgate: Headgate) -> Iterator[RecordingJob]:
    job = RecordingJob("ab12cd", "orders")
    with ControlServer(times=TIMES) as server, served_endpoint(server, job):
        yield job


def test_the_value_of_a_key_is_printed_alone_and_those_of_several_with_them(
    headgate: Headgate, job: RecordingJob
) -> None:
    done = headgate("get", "orders", "counts", "total", "a")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"n": 0}\n', "")
    done = headgate("get", "ab", "counts", "total", "a", "none", "b", "--key-type", "string")
    assert done.stdout == '"a"\t{"n": 0}\n"b"\t{"n": 2}\n'
    assert done.stderr == 'headgate: there is nothing at the key "none"\n'
    assert done.returncode == 0
    assert job.reads == [("total", "", 5.0), ("total", "string", 5.0)]


def test_machines_get_one_object(headgate: Headgate, job: RecordingJob) -> None:
    done = headgate("get", "orders", "counts", "total", "none", "--json", "--timeout", "100e-1")
    assert done.returncode == 1, "there is nothing"
    assert json.loads(done.stdout) == {
        "job": "ab12cd",
        "name": "orders",
        "uid": "counts",
        "operator": "count",
        "state": "total",
        "kind": "value",
        "values": [{"key": "none", "found": False, "value": None, "text": "", "problem": ""}],
    }
    assert job.reads == [("total", "", 10.0)]


def test_what_cannot_be_read_is_one_sentence(headgate: Headgate, job: RecordingJob) -> None:
    done = headgate("get", "orders", "sums", "total", "a")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "headgate: job ab12cd (orders): the job has no operator 'sums'; it has 'counts'\n"
    )
    done = headgate("get", "other", "counts", "total", "a")
    assert done.returncode == 2 and "'other' is no running job" in done.stderr
