"""A job that is planned and known to the coordinator: what it holds until its end.

Law: ``close`` gives back everything, however far the job has come; what was never run, or is to go
on with a later driver, keeps its checkpoints.
"""

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.base.checkpoints import Stop
from headgate.base.errors import SessionFailed, SlotsShort
from headgate.base.messages import Failure
from headgate.base.settings import StateSettings
from headgate.control.life_cycle import JobState
from headgate.host.checkpoints.checkpoint_store import discard
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import prepare_savepoint, savepoint_location
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.driver.driver_run import DriverRun
from headgate.host.driver.job_endpoint import JobEndpoint
from headgate.host.driver.results import ResultAddress
from headgate.host.net.contact import DriverContact
from headgate.host.net.loop import now_ms
from headgate.plan.exchange_memory import ExchangeMemory
from headgate.plan.job_graph import JobGraph
from headgate.spark.driver_services import Driver
from headgate.spark.job_files import JobFiles
from headgate.spark.job_secret import PublicContact, SecretDelivery
from headgate.spark.session import is_stopped, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTLE_S: Final = 30.0
"""How long a run that has failed may still store a checkpoint before the next one begins."""
EXECUTORS_S: Final = 30.0
"""How long executors that were lost may take to be replaced."""
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Prepared:
    """Whoever has prepared a job closes it."""

    session: "SparkSession"
    driver: Driver
    job_id: str
    graph: JobGraph
    slots: int
    memory: ExchangeMemory
    """Of the exchange in its task managers."""
    result_addresses: tuple[ResultAddress, ...]
    state: StateSettings
    job_files: JobFiles
    endpoint: JobEndpoint
    secret: SecretDelivery
    keeper: CheckpointKeeper | None = None
    """Of its checkpoints and restarts; None: the job is a part of a DataFrame, it has none."""
    is_known: bool = False
    """It has an id of its user's: a later driver finds its checkpoints."""

    @property
    def contact(self) -> DriverContact:
        """What the workers of the job's first run need."""
        return self.contact_of("")

    def contact_of(self, stage: str) -> DriverContact:
        """What the workers of a run need; each Spark job is a stage of its own."""
        made = self.driver.control.contact(self.job_id, self.memory.settings, stage, self.state)
        return replace(made, segments=self.memory.segments)

    def public_contact(self, stage: str) -> PublicContact:
        """The same for the function that Spark sends; it need not hold the secret."""
        return self.secret.public(self.contact_of(stage))

    def begin(self, stage: str = "") -> DriverRun:
        """Begin a run; raises what stands against it."""
        return self.driver.control.begin(self.job_id, stage)

    def await_restart(self, is_over: threading.Event) -> None:
        """Until a new run can begin: executors are there again, and the storage has done its work.

        Raises SlotsShort if executors do not come, SessionFailed if the session is no more, and
        StorageUnusable if the storage does not answer; ``is_over`` ends all waiting.
        """
        if is_stopped(self.session):
            raise SessionFailed("the job cannot go on, because its Spark session was stopped")
        deadline = time.monotonic() + EXECUTORS_S
        while (found := slots(self.session).total) < self.slots and not is_over.wait(LOOK_S):
            if time.monotonic() > deadline:
                raise SlotsShort(self.slots, found, 0)
        if self.keeper is not None:
            self.keeper.await_settled(SETTLE_S, is_over)

    def retry_in_ms(self, failure: Failure) -> float | None:
        """A run could not begin: when to try again; None: no more."""
        if self.keeper is None:
            return None
        with self.keeper.lock:
            return self.keeper.recovery.failed(failure, None, now_ms())

    def savepoint(self, run: DriverRun, directory: str | None, stop: Stop) -> "Future[str]":
        """Take one in a folder of its own below the directory, or below that of the settings.

        Raises SettingsInvalid or StorageUnusable if it cannot be written there.
        """
        keeper = self.keeper
        assert keeper is not None, "a part of a DataFrame has no savepoints"
        default = keeper.recovery.settings.savepoint_folder
        where = prepare_savepoint(directory, default, self.job_id)
        future = run.savepoint(where, stop)
        location = savepoint_location(open_folder(where))

        def clear(done: "Future[str]") -> None:
            if done.exception() is not None:
                keeper.put(partial(discard, location))

        future.add_done_callback(clear)
        return future

    def close(self, state: JobState = JobState.FAILED, *, suspended: bool = False) -> None:
        """The job has ended: nobody registers or delivers for it any more.

        ``suspended``: not because of anything about the job; a later driver may go on with it.
        """
        self.driver.slots.give_back(self.job_id)
        self.driver.control.close_job(self.job_id)
        self.secret.close()
        self.endpoint.close()
        for result_address in self.result_addresses:
            self.driver.results.close_stream(result_address)
        if self.keeper is not None:
            keeps = suspended and self.is_known
            self.keeper.close(JobState.FAILED if keeps else state)
