"""From a program to a running job: plan it, ship its code, check the slots, submit it to Spark.

Law: ``prepare`` raises before Spark runs anything of the job; what it returns must be closed.
"""

import atexit
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.api.program import Program
from headgate.base.errors import JobExceedsMemory, SessionFailed, SettingsInvalid, SlotsShort
from headgate.base.messages import ControlTimes
from headgate.base.recovery_settings import JOB_ID, CheckpointSettings
from headgate.base.redaction import redacted
from headgate.base.settings import (
    ExchangeSettings,
    JobSettings,
    LogSettings,
    RestSettings,
    StateSettings,
)
from headgate.control.deployment import RunPlan
from headgate.core.chain.log_facts import logged_with
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from headgate.host.driver.checkpoint_setup import CheckpointSetup, plan_run
from headgate.host.driver.control_server import MakePlan
from headgate.host.driver.driver_run import RunKey
from headgate.host.driver.job_endpoint import JobEndpoint
from headgate.host.driver.job_log import JobLog
from headgate.host.driver.results import ResultAddress
from headgate.host.shipping.code import ship, with_definitions
from headgate.host.worker.backends import check_backend
from headgate.observe.logs import log_settings, set_up_driver_logs
from headgate.observe.notebook import shows_progress
from headgate.observe.web.server import PageServer, page_server, print_link
from headgate.plan.exchange_memory import ExchangeMemory, size_exchange
from headgate.plan.execution_graph import place, usual_slots_per_worker
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.spark.archives import EndingJob, archive_at_end
from headgate.spark.cluster import Slots, SparkCluster, cluster_of
from headgate.spark.collect import DriverStream
from headgate.spark.configuration import check_known
from headgate.spark.driver_services import DriverServices, driver_services
from headgate.spark.executors import DYNAMIC, MOST
from headgate.spark.job import PreparedJob, SparkJob, end_jobs
from headgate.spark.job_files import add_python_files, pack
from headgate.spark.security import SecretDelivery, check_authentication
from headgate.spark.session import await_slots, check_python, find_session
from headgate.spark.slot_watch import shortage
from headgate.spark.worker import TaskManagerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.spark.dataframe.actions import Actions
    from headgate.spark.dataframe.frame_job import FrameJob
    from headgate.spark.streaming.job_streams import JobStreams

log = logging.getLogger(__name__)

_Shown = TypeVar("_Shown", bound=EndingJob)

SECRET_BYTES: Final = 32
CLUSTER_WAIT_S: Final = 30.0
"""On a cluster executors may still be on their way when the job starts."""
LAST_EXECUTOR_S: Final = 10.0
"""If none has come for this long after another, none is on its way."""

on_launched: Final[list[Callable[[SparkJob], None]]] = []
"""Called with every job that this process starts, on the starting thread."""
on_action_begun: Final[list[Callable[["FrameJob"], None]]] = []
"""Called with every action on a DataFrame that a job computes, on a thread of the coordinator."""
LAST_LINES_S: Final = 5.0
"""After the end of a job, for its workers to go; they send the last lines of their logs."""


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """A program that can be submitted, and what its configuration says."""

    graph: JobGraph
    exchange: ExchangeSettings
    state: StateSettings
    job: JobSettings
    logs: LogSettings
    setup: CheckpointSetup | None
    slots: int
    memory: ExchangeMemory


def prepare(program: Program, actions: "Actions | None" = None) -> PreparedJob:
    """Do and check all that needs no Spark job.

    ``actions``: of the DataFrame that the job is a part of. Such a job takes no checkpoints, Spark
    restarts it, and its log is opened with each run.
    """
    set_up_driver_logs(program.configuration)
    with logged_with({"job": program.graph.job_name}):
        return _prepare(program, actions)


def _prepare(program: Program, actions: "Actions | None") -> PreparedJob:
    lazy = actions is not None
    checked, session, profile = open_session(program, check_program(program, lazy), lazy=lazy)
    graph, settings, job, setup = checked.graph, checked.exchange, checked.job, checked.setup
    job_files, driver = pack(session, program), driver_services(session, job, settings)
    job_id = setup.job_id if setup is not None else secrets.token_hex(8)
    endpoint, secret = JobEndpoint(), secrets.token_bytes(SECRET_BYTES)
    delivery = SecretDelivery(session, secret, lazy=lazy, local=cluster_of(session).is_own)
    keeper = None if setup is None else open_keeper(program, setup, session, driver)
    result_addresses = connect_sinks(program, driver, job_id, secret)
    streams = open_streams(program, setup, session, job_id)
    log_of_job = JobLog(graph.name, job_id, forwards=not cluster_of(session).is_own)
    driver.control.open_job(
        job_id,
        secret,
        planner(program, graph, setup, keeper, actions),
        on_begun=(lambda run: None) if actions is None else actions.begun,
        on_ended=(lambda key, outcome: None) if actions is None else actions.ended,
        on_question=endpoint.answer,
        on_logged=log_of_job.received,
        lazy=lazy,
        times=control_times(job, settings),
        keeper=keeper,
    )
    prepared = PreparedJob(
        session=session,
        driver=driver,
        job_id=job_id,
        graph=graph,
        slots=checked.slots,
        memory=checked.memory,
        result_addresses=result_addresses,
        state=checked.state,
        job_files=job_files,
        endpoint=endpoint,
        secret=delivery,
        keeper=keeper,
        streams=streams,
        is_known=setup is not None and setup.is_known,
        logs=checked.logs,
        log=log_of_job,
        configuration=redacted(program.configuration),
        profile=profile,
    )
    if not lazy:
        log_of_job.open()
        reserve_slots(prepared)
    return prepared


def open_streams(
    program: Program, setup: CheckpointSetup | None, session: "SparkSession", job_id: str
) -> "JobStreams | None":
    """The logs of the program's named inputs and outputs; None: it has none."""
    functions = [function for node in program.graph.nodes.values() for function in node.functions]
    if not any(hasattr(function, "stream") for _, function in functions):
        return None
    from headgate.spark.streaming.job_streams import JobStreams, StreamHome

    place = StreamHome(
        job_id,
        program.graph.job_name,
        "" if setup is None else setup.settings.folder,
        "" if setup is None else setup.restored_job,
        None if setup is None else setup.restored_checkpoint,
        setup is not None and setup.is_enabled,
    )
    streams = JobStreams(program, place)
    streams.attach(session)
    return streams


def check_program(program: Program, lazy: bool) -> CheckedProgram:
    """Check all that needs no Spark session, and plan the job's slots and memory."""
    check_known(program.configuration)
    graph = build_job_graph(program.graph)
    exchange = ExchangeSettings.parse(program.configuration)
    state = StateSettings.parse(program.configuration)
    check_backend(state)
    setup = check_checkpoints(program, graph, exchange, lazy)
    graph = graph if setup is None else setup.graph
    slots, memory = place(graph).workers, size_exchange(graph, exchange)
    ship_code(program, graph)  # report a function that cannot be pickled before Spark starts
    job = JobSettings.parse(program.configuration)
    logs = log_settings(program.configuration)
    return CheckedProgram(graph, exchange, state, job, logs, setup, slots, memory)


def open_session(
    program: Program, checked: CheckedProgram, *, lazy: bool = False
) -> tuple[CheckedProgram, "SparkSession", object | None]:
    """The session that the job runs in, protected as the settings ask, with the user's modules.

    Returned with the program as it runs there, and with the resource profile of its tasks; None:
    that of the session.
    """
    session = find_session(program.configuration, needed=checked.slots)
    check_authentication(session, required=checked.job.spark_authentication)
    wanted = program.resource_profile
    profile = None if wanted is None else cluster_of(session).adopted_profile(wanted)
    checked = share_workers(program, checked, cluster_of(session), lazy=lazy)
    shared = checked.graph.slots_per_worker
    check_session(session, checked.slots, profile, lazy=lazy, shared=shared)
    check_python(session, checked.job.python_executable)
    add_python_files(session, program.python_files)
    return checked, session, profile


def share_workers(
    program: Program, checked: CheckedProgram, cluster: SparkCluster, *, lazy: bool = False
) -> CheckedProgram:
    """Decide how many slots each worker has; the fewer workers, the fewer slots of Spark."""
    if lazy or _reads_dataframes(program):  # Spark gives each slot its partition
        return checked
    per_worker = checked.job.worker_slots
    if not per_worker and cluster.is_own and program.resource_profile is None:
        per_worker = usual_slots_per_worker(checked.slots, os.cpu_count() or 1)
    while per_worker > 1:
        graph = replace(checked.graph, slots_per_worker=per_worker)
        try:
            memory = size_exchange(graph, checked.exchange)
        except JobExceedsMemory:
            if checked.job.worker_slots:
                raise
            per_worker //= 2  # more workers have more memory
            continue
        if checked.setup is not None:
            checked.setup.graph = graph
        return replace(checked, graph=graph, slots=place(graph).workers, memory=memory)
    return checked


def planner(
    program: Program,
    graph: JobGraph,
    setup: CheckpointSetup | None,
    keeper: CheckpointKeeper | None,
    actions: "Actions | None",
) -> MakePlan:
    """What plans the runs of a job."""
    code = ship_code(program, graph)

    def make_plan(key: RunKey) -> RunPlan:
        if actions is None:
            assert setup is not None and keeper is not None, "only a lazy job has no checkpoints"
            return setup.plan(keeper, str(key), code, program.parameters)
        number, given, wanted = key.generation, program.parameters, actions.rows_wanted(key)
        plan = plan_run(str(key), graph, code, number, given, rows_wanted=wanted)
        return plan if (task := actions.subtask(key)) is None else plan.of_task(task)

    return make_plan


def reserve_slots(prepared: PreparedJob) -> None:
    """For the whole life of the job; raises SlotsShort."""
    try:
        prepared.driver.slots.reserve(
            prepared.session,
            prepared.job_id,
            prepared.slots,
            prepared.profile,
            shared=prepared.graph.slots_per_worker,
        )
    except BaseException:
        prepared.close()
        raise


def check_checkpoints(
    program: Program, graph: JobGraph, settings: ExchangeSettings, lazy: bool
) -> CheckpointSetup | None:
    """What the program says about checkpoints, and what there is of earlier drivers."""
    if lazy:
        if CheckpointSettings.parse(program.configuration).is_enabled:
            log.warning("%s is a part of a DataFrame, and takes no checkpoints", graph.name)
        return None
    nodes = program.graph.nodes.values()
    sources = [(node.name, node.source) for node in nodes if node.source is not None]
    return CheckpointSetup(program.configuration, graph, sources, settings, program.graph)


def open_keeper(
    program: Program, setup: CheckpointSetup, session: "SparkSession", driver: DriverServices
) -> CheckpointKeeper:
    """The keeper of the checkpoints of a job that is about to start."""
    if driver.control.knows(setup.job_id):  # the two would drop each other's checkpoints
        raise SettingsInvalid(
            JOB_ID,
            f"{setup.job_id!r} is the id of a job that runs in this process; give another one",
        )
    in_place = not _reads_dataframes(program)
    return setup.open(is_local=cluster_of(session).is_local, in_place=in_place)


def control_times(job: JobSettings, exchange: ExchangeSettings) -> ControlTimes:
    """How long driver and task managers of a job wait for each other."""
    usual = ControlTimes()
    return ControlTimes(
        heartbeat_interval_ms=min(usual.heartbeat_interval_ms, exchange.heartbeat_interval_ms),
        heartbeat_timeout_ms=exchange.heartbeat_timeout_ms,
        start_ms=job.start_timeout_ms,
        cancel_ms=job.cancel_timeout_ms,
        metrics_ms=job.metrics_interval_ms,
        marker_ms=job.marker_interval_ms,
    )


def ship_code(program: Program, graph: JobGraph) -> bytes:
    """The job's vertices as bytes; an error names the function that cannot travel."""
    functions = {node.id: node.functions for node in program.graph.nodes.values()}
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    if JobSettings.parse(program.configuration).inline_functions:
        vertices = with_definitions(vertices, functions)
    return ship(vertices, functions)


def connect_sinks(
    program: Program, driver: DriverServices, job_id: str, secret: bytes
) -> tuple[ResultAddress, ...]:
    """Give sinks that end in the driver their way to it."""
    result_addresses = []
    for node in program.graph.nodes.values():
        for _, sink in node.functions:
            stream = getattr(sink, "driver_stream", None)
            if isinstance(stream, DriverStream) and stream.take is not None:
                stream.address = driver.results.open(stream.take, job_id, secret)
                result_addresses.append(stream.address)
    return tuple(result_addresses)


atexit.register(end_jobs, "the program has ended")


def launch(program: Program) -> SparkJob:
    """Submit a program; its records may come from DataFrames."""
    rest = RestSettings.parse(program.configuration)
    prepared = prepare(program)
    try:
        submit = _submission(program, prepared)
        contact = (
            prepared.contact
        )  # the job may be over, and its secret forgotten, when it is opened
        job = SparkJob(prepared, submit)
    except BaseException:
        prepared.close()
        raise
    page = page_server(rest)
    streams = prepared.streams
    with logged_with({"job": job.name, "job_id": job.job_id}):
        prepared.endpoint.open(
            job,
            contact,
            None if page is None else (page.url, page.token),
            () if streams is None else streams.addresses(),
        )
        if streams is not None:
            streams.started(job, prepared.session)
    settings = JobSettings.parse(program.configuration)
    show_job(job, page, settings, on_launched, settle=lambda: job.wait(LAST_LINES_S))
    return job


def show_job(
    job: _Shown,
    page: PageServer | None,
    settings: JobSettings,
    listeners: Iterable[Callable[[_Shown], None]],
    *,
    announces: bool = True,
    settle: Callable[[], object] = lambda: None,
) -> None:
    """Show a job that has begun on the page and in the terminal, and archive it at its end.

    ``announces``: print the address of its page; ``settle``: see ``archive_at_end``.
    """
    if page is not None:
        address = page.show(job)
        if announces:
            print_link(job.name, address)
    for notify in listeners:
        notify(job)
    if settings.archive_folder:
        jobs = None if page is None else page.jobs
        archive_at_end(job, settings.archive_folder, jobs, settle)
    if shows_progress(settings.progress):
        from headgate.observe.display import display

        display().watch(job, "" if page is None else page.link(job.job_id))


def _submission(program: Program, prepared: PreparedJob) -> Callable[[str], Any]:
    """What runs the Spark job of a program, as this stage of the job; returns at its end."""
    if _reads_dataframes(program):
        from headgate.spark.dataframe.conversion import NOTHING, barrier_plan

        first = barrier_plan(prepared, program, NOTHING, None)  # report problems now

        def collect(stage: str) -> Any:
            plan = barrier_plan(prepared, program, NOTHING, None, stage) if stage else first
            prepared.secret.attach(prepared.session)
            return plan.collect()

        return collect

    def submit(stage: str) -> Any:
        process = TaskManagerProcess(prepared.public_contact(stage), prepared.job_files)
        prepared.secret.attach(prepared.session)
        name = f"Headgate: {prepared.graph.name}"
        return prepared.cluster.run_barrier(process, prepared.slots, name, prepared.profile)

    return submit


def _reads_dataframes(program: Program) -> bool:
    """Whether a source holds a DataFrame; its module is not loaded if there is none."""
    functions = [function for node in program.graph.nodes.values() for function in node.functions]
    return any(getattr(source, "dataframe", None) is not None for _, source in functions)


def check_session(
    session: "SparkSession",
    needed: int,
    profile: object | None = None,
    *,
    lazy: bool = False,
    shared: int = 1,
) -> None:
    """Refuse a job that Spark could never start; Spark itself would wait for ten minutes first.

    ``shared``: how many subtasks of an operator share a slot.
    """
    cluster = cluster_of(session)
    if cluster.is_dynamic:
        _check_dynamic(cluster, needed, profile is not None, lazy)
        cluster.allocate(needed)
    found = cluster.slots(profile)
    if found.total < needed and not cluster.is_local:
        if found.excluded:  # others are on their way, and need no words
            log.warning("the job is %s", shortage(needed, found))
        found = await_executors(session, needed, profile)
    if found.total < needed:
        excluded = [str(executor) for executor in found.excluded]
        raise SlotsShort(needed, found.total, found.busy, excluded, shared)


def _check_dynamic(cluster: SparkCluster, needed: int, has_profile: bool, lazy: bool) -> None:
    """What cannot be had under dynamic allocation; raises SessionFailed."""
    settings = cluster.configuration()
    what = "the output of a job as a DataFrame" if lazy else "a job with a resource profile"
    if lazy or has_profile:
        raise SessionFailed(
            f"{DYNAMIC} is true, and {what} needs executors that stay; start the session with "
            f"--conf {DYNAMIC}=false{_fixed_size(settings, needed)}"
        )
    slots = _slots_of_executor(settings)
    most = int(settings.get(MOST, "0"))
    if slots and most and most * slots < needed:
        raise SessionFailed(
            f"the job needs {needed} slots, and {MOST}={most} allows {most * slots} ({slots} in "
            f"each executor); start the session with --conf {MOST}={-(-needed // slots)}, or lower "
            f"the parallelism"
        )


def _fixed_size(settings: Mapping[str, str], needed: int) -> str:
    """How many executors to ask for instead, where Spark starts two if nobody says how many."""
    slots = _slots_of_executor(settings)
    if not slots or settings.get("spark.master", "").startswith("spark:"):
        return ""
    return f" --conf spark.executor.instances={-(-needed // slots)} (with {slots} slots each)"


def _slots_of_executor(settings: Mapping[str, str]) -> int:
    """0: a standalone worker gives all its cores, however many."""
    is_standalone = settings.get("spark.master", "").startswith("spark:")
    cores = int(settings.get("spark.executor.cores", "0" if is_standalone else "1"))
    return max(1, cores // int(settings.get("spark.task.cpus", "1"))) if cores else 0


def await_executors(session: "SparkSession", needed: int, profile: object | None = None) -> Slots:
    """Wait for executors with enough slots, as long as they keep coming."""
    found = await_slots(session, 1, CLUSTER_WAIT_S, profile)
    while found.total < needed:
        more = await_slots(session, needed, LAST_EXECUTOR_S, profile)
        if more.total == found.total:
            break
        found = more
    return found
