"""Jobs whose sinks wait for the outside world: they can be cancelled at any time."""

import functools
from pathlib import Path

import pytest

from headgate.base.messages import TaskState
from headgate.connectors.streaming import sink as streaming
from headgate.connectors.streaming.stream_log import LogEntry, StreamLog
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from tests.connectors.streaming.kit import attached_output
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run
from tests.host.rig import eventually


def test_a_job_whose_output_waits_for_its_reader_is_cancelled(
    make_exchange: MakeExchange,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(streaming, "WARN_S", 0.0)
    sink, log = attached_output(tmp_path, most_checkpoints=1), StreamLog(str(tmp_path))
    for checkpoint in (1, 2):
        log.append(LogEntry("w1-0-0-ab", checkpoint, (), checkpoint))
    job = Job()
    job.operator(functools.partial(TwoPhaseSinkOperator, sink), job.source([(1, 0.5)]))
    run = Run(job, make_exchange(local_only=True))
    run.deploy()
    eventually(lambda: "holds the job back" in caplog.text, "the output waits")

    run.cancel()
    run.await_end()

    assert {states[-1] for states in run.states.values()} == {TaskState.CANCELLED}
    assert not run.errors and log.parts() == {}
