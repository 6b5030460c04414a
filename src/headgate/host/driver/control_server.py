"""The driver's control server: one port for all jobs, at which their task managers register.

A job is opened with its secret and a function that plans each run. A run begins when the launcher
says so, or, for a ``lazy`` job, with the first task manager that registers for its stage; there, a
slot that registers again means that Spark retries: the old run is dead and the next generation
begins. Law: an unproven peer, or a slow or dead task manager, delays nobody else; after ``close``
there is no thread and no socket left. Callbacks come from the server's threads.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from headgate.base.errors import HeadgateError, RunRefused, SettingsInvalid
from headgate.base.inspections import Question
from headgate.base.messages import (
    Address,
    ControlTimes,
    Inspected,
    Refused,
    Register,
    StateLineOpened,
    TaskManagerFailed,
)
from headgate.base.settings import ExchangeSettings, StateSettings
from headgate.control.deployment import RunPlan
from headgate.core.chain.log_facts import log_always_with
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.driver.control_peer import ControlPeer
from headgate.host.driver.driver_run import (
    DriverRun,
    OnEnded,
    OnLogged,
    RunHost,
    RunKey,
    call_safely,
)
from headgate.host.driver.job_endpoint import JobEndpoint, OnQuestion
from headgate.host.net.contact import DriverContact, local_path
from headgate.host.net.exchange import MIN_SECRET_BYTES
from headgate.host.net.listener import AcceptedConnection, Listener
from headgate.host.net.loop import now_ms
from headgate.host.net.transport import Tls
from headgate.host.worker.exits import exit_words

log = logging.getLogger(__name__)

FAREWELL_S: Final = 2.0
"""How long task managers may take to disconnect when the server closes."""

MakePlan = Callable[[RunKey], RunPlan]
"""Plans a run; ``RunPlan.run`` is ``str(key)``."""
OnBegun = Callable[[DriverRun], None]
"""A task manager has begun a run; on the thread of its connection."""


@dataclass(slots=True)
class _Job:
    secret: bytes = field(repr=False)
    make_plan: MakePlan
    on_begun: OnBegun
    on_ended: OnEnded
    on_question: OnQuestion
    on_logged: OnLogged
    lazy: bool
    times: ControlTimes
    keeper: CheckpointKeeper | None
    lock: threading.RLock = field(default_factory=threading.RLock)  # guards the two below
    runs: dict[str, DriverRun] = field(default_factory=dict)  # the current run of each stage
    generations: dict[str, int] = field(default_factory=dict)  # the next of each stage

    def plan(self, job: str, stage: str) -> tuple[RunKey, RunPlan]:
        """The next run, or attempt of a run, under an unused name."""
        with self.lock:
            key = RunKey(job, stage, self.generations.get(stage, 0))
            self.generations[stage] = key.generation + 1
        plan = self.make_plan(key)
        assert plan.run == str(key), f"plan {plan.run} for run {key}"
        return key, plan


class ControlServer:
    """Listens from its construction to ``close``."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertised_host: str | None = None,
        times: ControlTimes | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._times = times or ControlTimes()
        self._listener = Listener(
            host,
            port,
            self._serve,
            name="headgate-control",
            advertised_host=advertised_host,
            tls=tls,
        )
        self.address: Address = self._listener.address
        self._jobs: dict[str, _Job] = {}
        self._runs: list[DriverRun] = []  # without those that ended and all peers left
        self._lock = threading.Lock()  # guards the two above, and whether it is closed
        self._closed = False
        self._nudged = threading.Event()
        self._clock = threading.Thread(
            target=self._tick, name="headgate-control-clock", daemon=True
        )
        self._clock.start()
        self._listener.start()

    def open_job(
        self,
        job: str,
        secret: bytes,
        make_plan: MakePlan,
        *,
        on_begun: OnBegun = lambda run: None,
        on_ended: OnEnded = lambda key, outcome: None,
        on_question: OnQuestion | None = None,
        on_logged: OnLogged = lambda lines: None,
        lazy: bool = False,
        times: ControlTimes | None = None,
        keeper: CheckpointKeeper | None = None,
    ) -> None:
        """Let task managers of the job register.

        ``lazy``: the first of a stage that registers begins a run, which ``on_begun`` is told.

        ``times`` replace those of the server; ``keeper`` holds the job's checkpoints for all its
        runs, and whoever opens the job closes it.
        """
        if len(secret) < MIN_SECRET_BYTES:
            raise SettingsInvalid("the job's secret", f"needs {MIN_SECRET_BYTES} bytes or more")
        with self._lock:
            assert not self._closed, "the control server is closed"
            assert job not in self._jobs, f"job {job} is open already"
            own = times or self._times
            answer = on_question or JobEndpoint().answer
            self._jobs[job] = _Job(
                secret,
                make_plan,
                on_begun,
                on_ended,
                answer,
                on_logged,
                lazy,
                own,
                keeper,
            )

    def knows(self, job: str) -> bool:
        """Whether the job is open."""
        return job in self._jobs

    def contact(
        self,
        job: str,
        settings: ExchangeSettings,
        stage: str = "",
        state: StateSettings | None = None,
    ) -> DriverContact:
        """What the workers of a job need to reach this server."""
        entry = self._jobs[job]
        path = local_path(self.address)
        return DriverContact(
            self.address,
            job,
            entry.secret,
            settings,
            entry.times,
            stage,
            python_path=path,
            state=state or StateSettings(),
        )

    def begin(self, job: str, stage: str = "") -> DriverRun:
        """Begin a run before any task manager has registered."""
        entry = self._jobs[job]
        with entry.lock:
            return self._begin(entry, job, stage)

    def runs(self, job: str) -> list[DriverRun]:
        """The current run of each stage."""
        entry = self._jobs[job]
        with entry.lock:
            return list(entry.runs.values())

    def cancel(self, job: str, reason: str) -> None:
        """Cancel the current runs of a job."""
        for run in self.runs(job):
            run.cancel(reason)

    def close_job(self, job: str, reason: str = "the job was closed") -> None:
        """End the job's runs; nobody can register for it any more."""
        with self._lock:
            entry = self._jobs.pop(job, None)
        if entry is not None:
            with entry.lock:
                runs = list(entry.runs.values())
            for run in runs:
                run.give_up(reason)

    def close(self) -> None:
        """End everything. Idempotent; not from within a callback."""
        with self._lock:
            self._closed = True
            jobs, runs = list(self._jobs), list(self._runs)
        self._nudged.set()
        self._clock.join()
        self._listener.close()
        for job in jobs:
            self.close_job(job, "the driver closes")
        self._listener.join(FAREWELL_S)
        for run in runs:
            run.hang_up("the driver closes")
        self._listener.hang_up()  # also on peers that have never registered
        self._listener.join(None)

    def __enter__(self) -> "ControlServer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Connections.

    def _serve(self, accepted: AcceptedConnection) -> None:
        """The thread of a connection."""
        peer = ControlPeer(accepted.socket, accepted.name, self._times)
        try:
            job = peer.prove(self._find_secret, lambda: self._listener.proven_or_ended(accepted))
            if (entry := self._jobs.get(job)) is not None:
                peer.adopt(entry.times)
            first = peer.first_message()
            if isinstance(first, Question):
                self._answer(peer, job, first)
            elif isinstance(first, StateLineOpened):
                self._serve_line(peer, job, first)
            else:
                self._serve_task_manager(peer, job, first)
        except RunRefused as refused:
            log.info("%s is refused: %s", peer.name, refused.reason)
            peer.dismiss(Refused(refused.reason))
        except (OSError, HeadgateError) as error:
            self._listener.left(accepted, error)
        finally:
            peer.close()

    def _answer(self, peer: ControlPeer, job: str, question: Question) -> None:
        peer.dismiss(self._entry(job).on_question(question))

    def _serve_task_manager(
        self, peer: ControlPeer, job: str, first: Register | TaskManagerFailed
    ) -> None:
        run = self._register(peer, job, first)
        log_always_with(run.log_facts)
        problem = "it closed the connection"
        try:
            for message in peer.messages():
                run.received(message)
        except (OSError, HeadgateError) as error:
            problem = str(error)
        problem = peer.problem or problem
        if isinstance(first, Register):
            exit_status = "" if run.is_dead else exit_words(first.pid, first.host)
            process = f"process {first.pid} on {first.host}"
            problem = f"{problem} ({process}{exit_status and ': ' + exit_status})"
        run.lost(first.slot, peer, problem)
        self._nudged.set()

    def _serve_line(self, peer: ControlPeer, job: str, opened: StateLineOpened) -> None:
        """A task manager answers reads of state on a connection of its own."""
        entry = self._entry(job)
        with entry.lock:
            run = entry.runs.get(opened.stage)
        if run is None or not run.line_opened(opened, peer):
            raise RunRefused("no task manager of this process has registered")
        try:
            for message in peer.messages():
                if isinstance(message, Inspected):
                    run.received(message)
        finally:
            run.line_lost(opened.slot, peer)

    def _entry(self, job: str) -> _Job:
        entry = self._jobs.get(job)
        if entry is None:
            raise RunRefused("the job is over")
        return entry

    def _register(
        self, peer: ControlPeer, job: str, first: Register | TaskManagerFailed
    ) -> DriverRun:
        entry = self._entry(job)
        with entry.lock:
            before = entry.runs.get(first.stage)
            run = self._run_for(entry, job, first)
            problem = None
            if isinstance(first, TaskManagerFailed):
                run.unfit(first.slot, first.failure)
            else:
                problem = run.register(first, peer)
        if run is not before:
            call_safely(entry.on_begun, run)
        if problem is not None:
            raise RunRefused(problem)
        if isinstance(first, TaskManagerFailed):
            return run
        who = f"{first.host}, process {first.pid}, {peer.name}"
        facts = run.log_facts
        log.info("run %s: slot %d is served by %s", run.key, first.slot, who, extra=facts)
        return run

    def _run_for(self, entry: _Job, job: str, first: Register | TaskManagerFailed) -> DriverRun:
        run = entry.runs.get(first.stage)
        if not entry.lazy:
            if run is None:
                raise RunRefused(f"no run has begun for stage {first.stage!r}")
            return run
        if run is not None and not run.is_dead and not run.knows(first.slot):
            return run
        if run is not None:
            run.supersede(first.slot)
        try:
            return self._begin(entry, job, first.stage)
        except Exception as error:
            log.exception("job %s cannot begin a run", job, extra={"job": job, "job_id": job})
            raise RunRefused(f"no run can begin: {type(error).__name__}: {error}") from error

    def _begin(self, entry: _Job, job: str, stage: str) -> DriverRun:
        before = entry.runs.get(stage)
        assert before is None or before.outcome is not None, f"run {before.key} has not ended"
        if not entry.lazy:  # task managers of earlier stages are refused from now on
            entry.runs.clear()
        key, plan = entry.plan(job, stage)
        replan = partial(entry.plan, job, stage)
        host = RunHost(self._nudged.set, replan, entry.on_ended, entry.on_logged)
        run = DriverRun(key, plan, entry.times, host, entry.keeper)
        entry.runs[stage] = run
        with self._lock:
            self._runs.append(run)
        return run

    def _find_secret(self, job: str) -> bytes | None:
        entry = self._jobs.get(job)
        return None if entry is None else entry.secret

    # Time.

    def _tick(self) -> None:
        while not self._closed:
            self._forget_gone_runs()
            soonest = self._tick_runs()
            wait_s = None if soonest is None else max(0.0, soonest - now_ms()) / 1000
            self._nudged.wait(wait_s)
            self._nudged.clear()

    def _tick_runs(self) -> float | None:
        """Returns when to do it again. While the clock waits, it holds no run that is over."""
        deadlines = []
        for run in list(self._runs):
            run.tick()
            deadlines.append(run.next_deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _forget_gone_runs(self) -> None:
        """A DataFrame may be executed many times; its ended runs are forgotten."""
        with self._lock:
            gone = [run for run in self._runs if run.is_gone]
            self._runs = [run for run in self._runs if run not in gone]
            jobs = dict(self._jobs)
        for run in gone:
            entry = jobs.get(run.key.job)
            if entry is not None and entry.lazy:
                with entry.lock:
                    if entry.runs.get(run.key.stage) is run:
                        del entry.runs[run.key.stage]
