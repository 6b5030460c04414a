"""Task managers in processes of their own, and their driver: the whole control connection."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.base.messages import ControlTimes, TaskState
from headgate.control.life_cycle import JobState
from headgate.host.driver.control_server import ControlServer
from headgate.host.shipping.failures import revive
from headgate.host.worker.exits import STUCK_EXIT
from tests.host.control_rig import (
    SECRET,
    TIMES,
    Launcher,
    ended,
    impatient,
    replace_times,
    serving,
    task_states,
    workers,
)
from tests.host.jobs import FailLater, LoadsSlowly, flows, hang, job_of, written
from tests.host.processes import ROOT
from tests.host.rig import eventually


@pytest.mark.parametrize("batch", [False, True])
def test_a_job_is_deployed_runs_and_finishes(launcher: Launcher, folder: Path, batch: bool) -> None:
    run, contact = launcher.begin(job_of(folder, batch=batch))
    with serving(contact) as (first, second):
        assert ended(run).state is JobState.FINISHED
        first.returned()
        second.returned()
    assert written(folder) == sorted(str(2 * number) for number in range(1000))
    assert [key for key, _ in launcher.ended] == [run.key]
    assert set(task_states(run).values()) == {TaskState.FINISHED}
    assert [figures.task for figures in run.figures] == list(task_states(run))
    assert sum(figures.records_in for figures in run.figures if figures.vertex == 1) == 1000
    assert {figures.state for figures in run.figures} == {TaskState.FINISHED}


def test_a_failure_reaches_the_driver_with_operator_traceback_and_itself(
    launcher: Launcher, folder: Path
) -> None:
    run, contact = launcher.begin(job_of(folder, FailLater(folder), count=None))
    with serving(contact) as (first, second):
        outcome = ended(run)
        first.returned()
        second.returned()
    assert outcome.state is JobState.FAILED
    assert outcome.task in ("1.0", "1.1")
    failure = outcome.failure
    assert failure is not None
    assert "that is too much" in failure.message
    assert "map" in failure.operator
    assert "in map\n" in failure.traceback
    assert "that is too much" in str(revive(failure))


def test_a_job_can_be_cancelled(launcher: Launcher, folder: Path) -> None:
    run, contact = launcher.begin(job_of(folder, count=None))
    with serving(contact) as (first, second):
        eventually(lambda: flows(folder), "data flows")
        launcher.server.cancel("job", "enough")
        outcome = ended(run)
        first.returned()
        second.returned()
    assert (outcome.state, outcome.reason) == (JobState.CANCELLED, "enough")
    assert set(task_states(run).values()) == {TaskState.CANCELLED}


def test_figures_come_while_the_job_runs(launcher: Launcher, folder: Path) -> None:
    run, contact = launcher.begin(job_of(folder, count=None))
    with serving(contact) as (first, second):
        eventually(lambda: flows(folder), "data flows")
        eventually(lambda: any(f.records_in > 10 for f in run.figures if f.vertex == 2), "figures")
        run.cancel("enough")
        ended(run)
        first.returned()
        second.returned()


def test_a_worker_that_is_killed_fails_the_job_and_names_its_slot(
    launcher: Launcher, folder: Path
) -> None:
    run, contact = launcher.begin(job_of(folder, count=None))
    with serving(contact) as (first, second):
        eventually(lambda: flows(folder), "data flows")
        second.signal(signal.SIGKILL)
        outcome = ended(run)
        first.returned()
    assert outcome.state is JobState.FAILED
    assert outcome.failure is not None
    assert "the task manager of slot 1 is lost" in outcome.failure.message


def test_a_worker_that_freezes_is_given_up_after_the_heartbeat_timeout(
    no_leaks: None, folder: Path
) -> None:
    times = replace_times(TIMES, heartbeat_timeout_ms=2_000)
    with ControlServer(times=times) as server:
        run, contact = Launcher(server).begin(job_of(folder, count=None))
        with serving(contact) as (first, second):
            eventually(lambda: flows(folder), "data flows")
            second.signal(signal.SIGSTOP)
            outcome = ended(run)
            first.returned()
        assert outcome.failure is not None
        assert "slot 1 is lost: nothing was heard from it for 2 s" in outcome.failure.message


DRIVER = """
import pickle, sys, time
from pathlib import Path
from headgate.host.driver.control_server import ControlServer
from tests.host.control_rig import TIMES, Launcher
from tests.host.jobs import job_of
with ControlServer(times=TIMES) as server:
    run, contact = Launcher(server).begin(job_of(Path(sys.argv[1]), count=None))
    print(pickle.dumps(contact).hex(), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda n: n.name)
def test_workers_end_when_the_driver_is_gone(folder: Path, number: signal.Signals) -> None:
    import pickle

    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            assert driver.stdout is not None
            contact = pickle.loads(bytes.fromhex(driver.stdout.readline()))
            contact = impatient(contact, heartbeat_timeout_ms=2_000)
            with serving(contact) as (first, second):
                eventually(lambda: flows(folder), "data flows")
                driver.send_signal(number)
                problem = "nothing was heard" if number is signal.SIGSTOP else ""
                for worker in (first, second):
                    error, message = worker.raised()
                    assert error == "DriverLost"
                    assert problem in message
        finally:
            driver.kill()


def test_a_worker_with_another_secret_gets_nowhere_and_harms_nobody(
    launcher: Launcher, folder: Path
) -> None:
    run, contact = launcher.begin(job_of(folder))
    with workers(3) as (first, second, stranger):
        stranger.serve(replace(contact, secret=b"guess" * 8), 0)
        assert stranger.raised()[0] == "PeerUnproven"
        first.serve(contact, 0)
        second.serve(contact, 1)
        assert ended(run).state is JobState.FINISHED
        first.returned()
        second.returned()


def test_a_worker_of_a_job_that_is_over_is_told(launcher: Launcher, folder: Path) -> None:
    run, contact = launcher.begin(job_of(folder))
    run.cancel("never mind")
    with workers(1) as (late,):
        late.serve(contact, 0)
        assert late.raised() == (
            "RunRefused",
            "the driver refuses this task manager: the run is cancelled",
        )
        launcher.server.close_job("job")
        late.serve(contact, 0)
        error, message = late.raised()
        assert error == "PeerUnproven"
        assert "the job may be over already" in message


def test_a_driver_that_cannot_be_reached_is_named(launcher: Launcher, folder: Path) -> None:
    contact = launcher.open(job_of(folder))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    contact = replace(impatient(contact, connect_ms=300), address=address)
    with workers(1) as (worker,):
        worker.serve(contact, 0)
        error, message = worker.raised()
    assert error == "DriverUnreachable"
    assert f"cannot reach the driver at 127.0.0.1:{address[1]}" in message
    assert "set spark.driver.host" in message


def test_a_worker_that_cannot_start_tells_the_driver_why(launcher: Launcher, folder: Path) -> None:
    run, contact = launcher.begin(job_of(folder))
    settings = replace(contact.settings, bind_host="192.0.2.1")  # an address of nobody
    with workers(1) as (worker,):
        worker.serve(replace(contact, settings=settings), 0)
        error, message = worker.raised()
    outcome = ended(run)
    assert outcome.state is JobState.FAILED
    assert outcome.failure is not None
    assert error in outcome.failure.kind
    assert outcome.failure.message == message


def test_code_that_cannot_be_loaded_fails_the_job_with_advice(
    launcher: Launcher,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "only_here.py").write_text("def identity(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    run, contact = launcher.begin(job_of(folder, only_here.identity, parallelism=1))
    with workers(1) as (worker,):
        worker.serve(replace(contact, python_path=()), 0)  # as on another machine
        outcome = ended(run)
        worker.returned()
    assert outcome.failure is not None
    assert "module 'only_here' is not there" in outcome.failure.message
    assert "env.add_python_file" in outcome.failure.message
    assert "env.add_python_file" not in capfd.readouterr().err, "the driver says it, once"


def test_two_jobs_run_side_by_side(launcher: Launcher, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    begun = []
    for made in folders:
        made.mkdir()
        begun.append(launcher.begin(job_of(made), made.name))
    with workers(4) as started:
        for number, worker in enumerate(started):
            worker.serve(begun[number % 2][1], number // 2)
        for run, _ in begun:
            assert ended(run).state is JobState.FINISHED
        for worker in started:
            worker.returned()
    for made in folders:
        assert written(made) == sorted(str(2 * number) for number in range(1000))
    assert sorted(key.job for key, _ in launcher.ended) == ["a", "b"]


def test_a_worker_process_is_used_again_for_the_next_jobs(
    launcher: Launcher, tmp_path: Path
) -> None:
    with workers(2) as (first, second):
        for name in ("a", "b", "c"):
            made = tmp_path / name
            made.mkdir()
            failing = job_of(made, FailLater(made), count=None)
            run, contact = launcher.begin(failing if name == "b" else job_of(made), name)
            first.serve(contact, 0)
            second.serve(contact, 1)
            assert ended(run).state is (JobState.FAILED if name == "b" else JobState.FINISHED)
            first.returned()
            second.returned()


def test_a_function_that_does_not_come_back_ends_the_process_if_that_is_allowed(
    no_leaks: None, folder: Path
) -> None:
    with ControlServer(times=replace_times(TIMES, cancel_ms=500)) as server:
        run, contact = Launcher(server).begin(job_of(folder, hang, parallelism=1))
        with workers(1) as (worker,):
            worker.serve(contact, 0, may_exit=True)
            eventually(lambda: run.state is JobState.RUNNING, "it runs")
            run.cancel("enough")
            assert ended(run).state is JobState.CANCELLED
            assert worker.process.wait(20) == STUCK_EXIT


def test_a_worker_that_loads_its_code_for_long_is_not_given_up(
    no_leaks: None, folder: Path
) -> None:
    with ControlServer(times=replace_times(TIMES, heartbeat_timeout_ms=1_500)) as server:
        run, contact = Launcher(server).begin(job_of(folder, LoadsSlowly(3), parallelism=1))
        with workers(1) as (worker,):
            worker.serve(contact, 0)
            assert ended(run).state is JobState.FINISHED
            worker.returned()


def test_a_worker_that_loads_for_ever_ends_when_the_driver_is_gone(
    no_leaks: None, folder: Path
) -> None:
    with workers(1) as (worker,):
        with ControlServer(times=replace_times(TIMES, lost_ms=100)) as server:
            run, contact = Launcher(server).begin(job_of(folder, LoadsSlowly(600), parallelism=1))
            worker.serve(contact, 0, may_exit=True)
            eventually(lambda: run.state is JobState.DEPLOYING, "it loads")
        assert worker.process.wait(20) == STUCK_EXIT


def test_a_driver_that_closes_sends_its_workers_home(no_leaks: None, folder: Path) -> None:
    with workers(2) as (first, second):
        with ControlServer(times=TIMES) as server:
            run, contact = Launcher(server).begin(job_of(folder, count=None))
            first.serve(contact, 0)
            second.serve(contact, 1)
            eventually(lambda: flows(folder), "data flows")
        assert ended(run).state is JobState.CANCELLED
        first.returned()
        second.returned()


def test_a_lazy_job_begins_a_run_for_each_stage_and_anew_when_a_slot_comes_again(
    launcher: Launcher, tmp_path: Path
) -> None:
    made = tmp_path / "lazy"
    made.mkdir()
    contact = launcher.open(job_of(made, count=None), lazy=True)
    first_stage = replace(contact, stage="7")
    with workers(3) as (first, second, again):
        first.serve(first_stage, 0)
        second.serve(first_stage, 1)
        eventually(lambda: flows(made), "data flows")
        again.serve(first_stage, 0)
        first.returned()
        second.returned()
        eventually(lambda: len(launcher.ended) == 1, "the old run is dead")
        key, outcome = launcher.ended[0]
        assert (str(key), outcome.state) == ("job/7/0", JobState.FAILED)
        assert outcome.failure is not None
        assert outcome.failure.kind.endswith("RunSuperseded")
        second.serve(first_stage, 1)
        (run,) = launcher.server.runs("job")
        eventually(lambda: run.state is JobState.RUNNING, "the next generation runs")
        assert str(run.key) == "job/7/1"
        run.cancel("enough")
        again.returned()
        second.returned()
        first.serve(replace(contact, stage="8"), 0)
        eventually(lambda: any(r.key.stage == "8" for r in launcher.server.runs("job")), "stage 8")
        launcher.server.cancel("job", "enough")
        first.returned()


def test_the_secret_is_not_shown() -> None:
    with ControlServer(times=ControlTimes()) as server:
        launcher = Launcher(server)
        assert SECRET.decode() not in repr(launcher.open(job_of(Path("x"))))
