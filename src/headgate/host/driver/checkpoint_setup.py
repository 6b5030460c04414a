"""A job's checkpoint and restart settings, checked, and the checkpoint that the job restores.

Made before Spark is asked, opened when the job is about to start. Law: errors in the settings, the
storage or the checkpoint to restore are raised before anything runs; a job that never starts
touches no existing checkpoint.
"""

import logging
import random
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from headgate.base.checkpoints import Metadata, SourceState, TaskRestore
from headgate.base.errors import (
    CheckpointError,
    CheckpointsDamaged,
    CheckpointUnsound,
    HeadgateError,
    PlanInvalid,
    SettingsInvalid,
)
from headgate.base.messages import CheckpointOrder
from headgate.base.recovery_settings import (
    CHECKPOINT_FOLDER,
    RESTORE_PATH,
    CheckpointSettings,
    RecoverySettings,
    RestartSettings,
)
from headgate.base.redaction import without_secrets
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.deployment import RunPlan
from headgate.control.effects import StoreCheckpoint
from headgate.control.recovery import Recovery, RepeatedFailures, restart_strategy
from headgate.functions.source import why_not_rewound
from headgate.host.checkpoints.checkpoint_store import FoundCheckpoint, damages_of
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints, StoppedWith
from headgate.host.checkpoints.location import resolve
from headgate.host.checkpoints.metadata import checkpoint_key
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.net.loop import wall_ms
from headgate.plan.execution_graph import (
    build_execution_graph,
    checkpointed_job,
    planned_sources,
)
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.state_assignment import inherit_groups, restore
from headgate.plan.stream_graph import StreamGraph

log = logging.getLogger(__name__)
progress = logging.getLogger("headgate.progress")  # shown whatever else is logged


class CheckpointSetup:
    """The checked settings of one job, and what earlier drivers have left."""

    def __init__(
        self,
        configuration: Mapping[str, str],
        graph: JobGraph,
        sources: Iterable[tuple[str, object]] = (),
        exchange: ExchangeSettings | None = None,
        program: StreamGraph | None = None,
    ) -> None:
        """``sources``: by name; ``program``: what the graph was made from, so that another one can
        be made with the key groups of a checkpoint. Raises SettingsInvalid, PlanInvalid,
        CheckpointError or RestoreRefused.
        """
        self.settings = CheckpointSettings.parse(configuration)
        self.recovery = RecoverySettings.parse(configuration)
        self._signing = checkpoint_key(self.settings)
        self.graph = graph
        """What is executed."""
        self.takes_any = not graph.batch
        """Whether the job can have savepoints, at least."""
        self.is_enabled = self.takes_any and self.settings.is_enabled
        restarts = RestartSettings.parse(configuration).settled(self.is_enabled)
        self._strategy = restart_strategy(restarts)
        self._repeats = RepeatedFailures(restarts.identical_failures, restarts.exponential_reset_ms)
        self.job_id = self.recovery.job_id or secrets.token_hex(8)
        self._check_exchange(exchange or ExchangeSettings())
        if self.is_enabled:
            for name, source in sources:
                if problem := why_not_rewound(source, name):
                    raise PlanInvalid(problem)
        has_folder = self.takes_any and self.settings.folder
        where = self.settings.folder if has_folder else ""
        self._storage = JobCheckpoints(self.job_id, where, signing=self._signing) if where else None
        self._found: list[Metadata] = []
        self._origin: StoreCheckpoint | None = None
        self.restored_job = ""
        """The job whose checkpoint this one goes on from, perhaps itself; empty: it begins."""
        self.restored_checkpoint: int | None = None
        """The number of that checkpoint; None: the job begins."""
        start = self._find_start()
        if start is not None and program is not None:
            with _consistent(start.metadata.checkpoint):
                self.graph = build_job_graph(inherit_groups(program, start.metadata))
        if start is not None:
            self.restores(start)  # or it is refused now

    @property
    def is_known(self) -> bool:
        """Whether the user has given the job an id, by which a later driver finds it."""
        return bool(self.recovery.job_id)

    def open(self, *, is_local: bool, in_place: bool = True) -> CheckpointKeeper:
        """The job is about to start; whoever opens the keeper closes it.

        ``is_local``: all processes are on this machine; ``in_place``: its tasks can be redeployed
        to the same task managers. Raises SettingsInvalid, CheckpointError or RestoreRefused.
        """
        storage = self._storage
        if storage is None and self.is_enabled:
            if not is_local:
                raise SettingsInvalid(
                    CHECKPOINT_FOLDER,
                    "is not set, and checkpoints need a folder that the driver and all workers "
                    "share: set it to a path on a shared file system, or to a URI",
                )
            if self.is_known:
                log.warning(
                    "job %s has an id, but no later driver will find its checkpoints: set %s",
                    self.job_id,
                    CHECKPOINT_FOLDER,
                )
            storage = JobCheckpoints.temporary(self.job_id, self._signing)
        storage = storage or JobCheckpoints(self.job_id, signing=self._signing)
        storage.claim()
        try:
            return self._open(storage, in_place)
        except BaseException:
            with suppress(CheckpointError):
                storage.release()
            raise

    def _open(self, storage: JobCheckpoints, in_place: bool) -> CheckpointKeeper:
        # A driver thought dead may have completed one more before the job was claimed.
        if self.is_known and (start := self._find_start()) is not None:
            self.restores(start)
        inner = storage.storage
        history = CheckpointHistory(
            self.recovery.retained,
            self._found,
            self._origin,
            1 if inner is None else inner.next_id(self.job_id),
        )
        recovery = Recovery(
            self.settings,
            self._strategy,
            history,
            repeats=self._repeats,
            in_place=in_place and self.takes_any,
            wall_ms=wall_ms,
            chance=lambda: random.uniform(-1, 1),
            ignores_damaged=self.recovery.ignores_damaged,
        )
        return CheckpointKeeper(recovery, storage, self.graph.name)

    def plan(
        self, keeper: CheckpointKeeper, run: str, code: bytes, parameters: Mapping[str, str]
    ) -> RunPlan:
        """Plan the next attempt, from the newest intact checkpoint.

        Raises RestoreRefused, CheckpointError, or JobTakenOver.
        """
        attempt = keeper.restarts
        if not self.takes_any:
            return plan_run(run, self.graph, code, attempt, parameters)
        restores, where = None, ""
        sources: tuple[SourceState, ...] = ()
        keeper.storage.check_claim()
        latest = self._newest_intact(keeper)
        keeper.storage.drop_above(0 if latest is None else latest.metadata.checkpoint)
        keeper.storage.clean()
        if latest is not None:
            restores, sources = self.restores(latest), latest.metadata.sources
            number = latest.metadata.checkpoint
            where = latest.directory or keeper.storage.location(number, "").own.uri
            shown = without_secrets(where)
            progress.info("job %s goes on from checkpoint %d (%s)", self.job_id, number, shown)
        elif self.is_known and not attempt:
            shown = keeper.storage.shown
            progress.info("job %s has no checkpoint in %s: it begins", self.job_id, shown)
        order = CheckpointOrder(
            keeper.storage.uri if self.is_enabled else "",
            self.job_id,
            self.settings.is_exact,
            self.settings.overtake_after_ms,
            self.settings.inline_bytes,
            self.recovery.incremental,
            where,
            self.settings.timeout_ms,
            self._signing is not None,
        )
        return plan_run(run, self.graph, code, attempt, parameters, order, restores, sources)

    def _newest_intact(self, keeper: CheckpointKeeper) -> StoreCheckpoint | None:
        """Damage that a listing shows is found here, the rest by the tasks that restore."""
        while (latest := keeper.latest) is not None:
            error = keeper.storage.damage_of(latest)
            if error is None:
                return latest
            keeper.storage.check_claim()  # a storage that has just gone away is no damage
            error = keeper.storage.damage_of(latest)  # and it may have come back in between
            if error is None:
                return latest
            number = latest.metadata.checkpoint
            log.warning(
                "checkpoint %d of job %s is damaged, and skipped: %s",
                number,
                self.job_id,
                error,
            )
            if not keeper.pass_over(number):
                where = keeper.storage.shown or latest.directory
                raise CheckpointsDamaged(where, self.job_id, (f"{error.path}: {error.problem}",))
        return None

    def restores(self, start: StoreCheckpoint) -> dict[str, TaskRestore]:
        """What each task gets back from it; raises RestoreRefused."""
        with _consistent(start.metadata.checkpoint):
            return restore(
                start.metadata,
                self.graph,
                ignores_unclaimed=self.recovery.ignores_unclaimed,
                without_in_flight=start.metadata.checkpoint == self.settings.ignored_in_flight,
            )

    def _check_exchange(self, exchange: ExchangeSettings) -> None:
        if exchange.flow_control is not FlowControl.TCP or not self.settings.is_exact:
            return
        if self.is_enabled:
            raise SettingsInvalid(
                "exchange.flow-control",
                "is tcp, which cannot hold back a single channel, and exactly once needs that; "
                "set it to credit, or execution.checkpointing.mode to at_least_once",
            )
        self.takes_any = False

    def _find_start(self) -> StoreCheckpoint | None:
        """The checkpoint to restore, left by earlier drivers or named by the settings.

        Raises CheckpointsDamaged if earlier drivers have left none that is intact.
        """
        self._found, damaged = self._find()
        newest = StoreCheckpoint(self._found[-1]) if self._found else None
        stop = self._storage.stopped_with() if self._storage is not None and self.is_known else None
        if stop is not None and newest is not None and stop.number <= newest.metadata.checkpoint:
            stop = None  # the job has been resumed from it
        self._origin = self._find_origin(newest, stop) if self.recovery.path else None
        if self._origin is None and stop is not None:
            location, metadata = stop.resolve(self.job_id, self._signing)
            self._origin = StoreCheckpoint(metadata, location.own.uri)
        if damaged and newest is None:
            self._check_damage(damaged)
        start = self._origin or newest
        self.restored_job = "" if start is None else start.metadata.job
        self.restored_checkpoint = None if start is None else start.metadata.checkpoint
        return start

    def _find(self) -> tuple[list[Metadata], tuple[FoundCheckpoint, ...]]:
        """Intact checkpoints of earlier drivers of the job, the oldest first; and damaged ones."""
        storage = None if self._storage is None else self._storage.storage
        if storage is None or not self.is_known:
            return [], ()
        candidates = storage.restore_candidates(self.job_id)
        newest = candidates.latest
        if newest is None or newest.checkpoint is None:
            return [], candidates.damaged
        whole = [
            found.metadata
            for found in storage.list_checkpoints(self.job_id)
            if found.metadata is not None and found.metadata.checkpoint <= newest.checkpoint
        ]
        return whole, candidates.damaged

    def _check_damage(self, damaged: tuple[FoundCheckpoint, ...]) -> None:
        """No own checkpoint is intact: only one newer than all of them may be restored instead.

        Any other start would repeat what the job's sinks have committed since.
        """
        newest = max(found.checkpoint or 0 for found in damaged)
        if self._origin is not None:
            origin = self._origin.metadata
            if origin.job == self.job_id and origin.checkpoint > newest:
                return
        assert self._storage is not None and self._storage.folder is not None, "found in no storage"
        where = self._storage.folder.shown
        error = CheckpointsDamaged(where, self.job_id, damages_of(damaged))
        if not self.recovery.ignores_damaged:
            raise error
        log.warning("%s: %s; the job goes on without them", where, error.problem)

    def _find_origin(
        self, newest: StoreCheckpoint | None, stop: StoppedWith | None
    ) -> StoreCheckpoint | None:
        """What the settings name, unless the job has been resumed from it already."""
        if not self.takes_any:
            raise SettingsInvalid(
                RESTORE_PATH, "is set, but this job has no state to restore; remove the setting"
            )
        location, metadata = resolve(self.recovery.path, signing=self._signing)
        number = 0 if newest is None else newest.metadata.checkpoint
        least = number + 1 if stop is None else stop.number  # that itself, wherever it is now
        is_older = metadata.job != self.job_id or metadata.checkpoint < least
        if is_older and (newest or stop):  # the driver was restarted with the same settings
            log.warning(
                "job %s goes on from its checkpoint %d and not from %s, which it had gone on from "
                "before; give it another id to go back",
                self.job_id,
                number if stop is None else stop.number,
                location.shown,
            )
            return None
        return StoreCheckpoint(metadata, location.own.uri)


@contextmanager
def _consistent(checkpoint: int) -> Iterator[None]:
    """Metadata with a valid checksum may still be inconsistent."""
    try:
        yield
    except HeadgateError:
        raise
    except Exception as error:
        problem = f"its metadata contradicts itself ({type(error).__name__}: {error})"
        raise CheckpointUnsound(checkpoint, problem) from error


def plan_run(
    run: str,
    graph: JobGraph,
    code: bytes,
    attempt: int = 0,
    parameters: Mapping[str, str] | None = None,
    checkpoints: CheckpointOrder | None = None,
    restores: Mapping[str, TaskRestore] | None = None,
    sources: Iterable[SourceState] = (),
    rows_wanted: int | None = None,
) -> RunPlan:
    """The plan of one run; ``run`` is in the name of every partition, so that runs do not mix.

    ``restores``: what each task gets back of a checkpoint, if there is one; ``sources``: what the
    driver does. ``rows_wanted``: see ``RunPlan``.
    """
    execution = build_execution_graph(graph, run, attempt, restores)
    given = restores or {}
    return RunPlan(
        run,
        graph.name,
        execution.tasks,
        execution.slots,
        code,
        attempt,
        parameters or {},
        graph.batch,
        checkpoints,
        replace(checkpointed_job(graph, execution), job=checkpoints.job) if checkpoints else None,
        next((restore.checkpoint for restore in given.values()), None),
        planned_sources(graph, execution, given, sources),
        rows_wanted,
    )
