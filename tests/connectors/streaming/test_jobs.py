"""A job between two queries whose workers are killed, and that is then rescaled: each row once."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.base.checkpoints import Stop
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.control.life_cycle import JobState
from tests.connectors.job_kit import COMMITS, open_job, serve
from tests.connectors.streaming.mortal_job import POINTS, StreamCopy
from tests.host.control_rig import ended, workers
from tests.host.rig import eventually


def test_each_row_comes_once_wherever_in_a_commit_a_worker_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy = StreamCopy(tmp_path)
    with ExitStack() as opened, workers(len(POINTS) + 2) as processes:
        job = open_job(opened, tmp_path, copy.graph(1), **COMMITS)
        run = serve(job, processes[:1])
        for number, point in enumerate(POINTS):
            (tmp_path / point).touch()
            copy.add(10)
            assert ended(run).restart_in_ms is not None, point
            assert job.keeper.settled().wait(20)
            run = serve(job, [processes[number + 1]], point)
            copy.all_are_in()
        copy.add(10)
        saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND).result(30)
        assert ended(run).state is JobState.FINISHED
        assert processes[-2].report()["error"] is None
        settings = {**COMMITS, "execution.savepoint.path": str(saved)}
        job = open_job(opened, tmp_path / "later", copy.graph(2), **settings)
        run = serve(job, processes[-2:])
        copy.add(10)
        copy.all_are_in()
        log = StreamLog(str(tmp_path / "in"))
        eventually(lambda: not (log.parts() or log.entries()), "all is read and removed")
        run.cancel("the test is over")
        ended(run)
