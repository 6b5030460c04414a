"""From a program to a running job: plan it, ship its code, check the slots, submit it to Spark."""

import atexit
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.errors import SessionFailed
from headgate.base.job_errors import SlotsShort
from headgate.base.messages import ControlTimes
from headgate.base.settings import ExchangeSettings, JobSettings, ProgressShown
from headgate.base.state_settings import StateSettings
from headgate.control.deployment import RunPlan
from headgate.host.backends import check_backend
from headgate.host.contact import Contact
from headgate.host.control_run import OnEnded, RunKey
from headgate.host.orders import plan_run
from headgate.host.results import Uplink
from headgate.host.shipping import ship
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.placement import place
from headgate.spark.collecting import DriverSink
from headgate.spark.driver import Driver, driver_for
from headgate.spark.job import SparkJob, end_jobs
from headgate.spark.luggage import Luggage, pack
from headgate.spark.python_files import add_python_files
from headgate.spark.session import Slots, await_slots, check_python, find_session, slots
from headgate.spark.worker import TaskManagerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET_BYTES: Final = 32
CLUSTER_WAIT_S: Final = 30.0
"""On a cluster executors may still be on their way when the job starts."""
LAST_EXECUTOR_S: Final = 10.0
"""If none has come for this long after another, none is on its way."""
DYNAMIC: Final = "spark.dynamicAllocation.enabled"

on_launched: Final[list[Callable[[SparkJob], None]]] = []
"""Who wants to know of every job that this process starts; called on the starting thread."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that is planned and known to the coordinator, and not yet submitted."""

    session: "SparkSession"
    driver: Driver
    job_id: str
    graph: JobGraph
    slots: int
    settings: ExchangeSettings
    uplinks: tuple[Uplink, ...]
    state: StateSettings
    luggage: Luggage

    @property
    def contact(self) -> Contact:
        """What the workers of the job need."""
        return self.driver.control.contact(self.job_id, self.settings, state=self.state)

    def close(self) -> None:
        """The job has ended: nobody registers or delivers for it any more."""
        self.driver.slots.give_back(self.job_id)
        self.driver.control.close_job(self.job_id)
        for uplink in self.uplinks:
            self.driver.results.close_stream(uplink)


def prepare(
    program: Program,
    *,
    lazy: bool = False,
    on_ended: OnEnded = lambda key, outcome: None,
) -> Prepared:
    """Everything that can go wrong before Spark is asked goes wrong here."""
    graph = build_job_graph(program.graph)
    settings = ExchangeSettings.parse(program.configuration)
    state = StateSettings.parse(program.configuration)
    check_backend(state)
    needed = place(graph).slots
    ship_code(program, graph)  # a function that cannot travel is told before Spark is started
    session = find_session(program.configuration)
    check_session(session, needed)
    add_python_files(session, program.python_files)
    luggage = pack(session, program)
    job = JobSettings.parse(program.configuration)
    check_python(session, job.python_executable)
    driver = driver_for(session, job)
    uplinks = connect_sinks(program, driver)
    code = ship_code(program, graph)
    job_id = secrets.token_hex(8)

    def make_plan(key: RunKey) -> RunPlan:
        return plan_run(str(key), graph, code, key.generation, program.parameters)

    secret = secrets.token_bytes(SECRET_BYTES)
    times = ControlTimes(
        cancel_ms=job.cancel_timeout_ms,
        metrics_ms=job.metrics_interval_ms,
        marker_ms=job.marker_interval_ms,
    )
    driver.control.open_job(job_id, secret, make_plan, on_ended=on_ended, lazy=lazy, times=times)
    ready = Prepared(session, driver, job_id, graph, needed, settings, uplinks, state, luggage)
    if not lazy:
        try:
            driver.slots.reserve(session, job_id, needed)
        except BaseException:
            ready.close()
            raise
    return ready


def ship_code(program: Program, graph: JobGraph) -> bytes:
    """The job's vertices as bytes; an error names the function that cannot travel."""
    functions = {node.id: node.functions for node in program.graph.nodes.values()}
    return ship({vertex.id: vertex for vertex in graph.vertices}, functions)


def connect_sinks(program: Program, driver: Driver) -> tuple[Uplink, ...]:
    """Give sinks that end in the driver their way to it."""
    uplinks = []
    for node in program.graph.nodes.values():
        for _, sink in node.functions:
            if isinstance(sink, DriverSink) and sink.take is not None:
                sink.uplink = driver.results.open(sink.take)
                uplinks.append(sink.uplink)
    return tuple(uplinks)


atexit.register(end_jobs, "the program has ended")


def launch(program: Program) -> SparkJob:
    """Submit a program; its records may come from DataFrames."""
    ready = prepare(program)
    submit = _submission(program, ready)
    run = ready.driver.control.begin(ready.job_id)
    job = SparkJob(ready.session, ready.job_id, ready.graph, run, submit, ready.close)
    for tell in on_launched:
        tell(job)
    if JobSettings.parse(program.configuration).progress is ProgressShown.ON:
        from headgate.observe.display import display

        display().watch(job)
    return job


def _submission(program: Program, ready: Prepared) -> Callable[[], Any]:
    """What runs the Spark job of a program; returns at its end."""
    if _reads_dataframes(program):
        from headgate.spark.dataframes import NOTHING, barrier_plan

        try:
            plan = barrier_plan(ready, program, NOTHING, None)
        except BaseException:
            ready.close()
            raise
        return plan.collect
    process = TaskManagerProcess(ready.contact, ready.luggage)

    def submit() -> Any:
        context = ready.session.sparkContext
        barrier = context.parallelize(range(ready.slots), ready.slots).barrier()
        # Spark would name the job after the line of code here; `runJob` leaves our name alone.
        context.setLocalProperty("callSite.short", f"Headgate: {ready.graph.name}")
        partitions = list(range(ready.slots))
        return context.runJob(barrier.mapPartitions(process), iter, partitions)

    return submit


def _reads_dataframes(program: Program) -> bool:
    """Whether a source holds a DataFrame; its module is not loaded if there is none."""
    functions = [function for node in program.graph.nodes.values() for function in node.functions]
    return any(getattr(source, "dataframe", None) is not None for _, source in functions)


def check_session(session: "SparkSession", needed: int) -> None:
    """Refuse a job that Spark could never start; Spark itself would wait for ten minutes first."""
    context = session.sparkContext
    is_local = (context.master or "").startswith("local")
    if not is_local and context.getConf().get(DYNAMIC, "false") == "true":
        raise SessionFailed(
            f"{DYNAMIC} is true, and Spark then has no fixed slots for tasks that run side by "
            f"side; start the session with --conf {DYNAMIC}=false"
        )
    found = slots(session)
    if found.total < needed and not is_local:
        found = await_executors(session, needed)
    if found.total < needed:
        raise SlotsShort(needed, found.total, found.busy)


def await_executors(session: "SparkSession", needed: int) -> Slots:
    """Wait for executors with enough slots, as long as they keep coming."""
    found = await_slots(session, 1, CLUSTER_WAIT_S)
    while found.total < needed:
        more = await_slots(session, needed, LAST_EXECUTOR_S)
        if more.total == found.total:
            break
        found = more
    return found
