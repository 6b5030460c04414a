"""Paths that look into running tasks: flame graphs, waiting records, channels, state, what limits.

Law: each has a deadline, few are answered at a time, and a task that cannot be looked at is a
sentence, never a failed job.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec import structs

from headgate.base.errors import InspectionFailed, StateUnreadable
from headgate.base.inspections import (
    MAX_HERTZ,
    MAX_SECONDS,
    MAX_STATE_KEYS,
    ChannelTable,
    Found,
    Inspection,
    PeekRecords,
    ReadChannels,
    SampleStacks,
    ShownState,
    StackSamples,
    WaitingRecords,
)
from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.analysis.windows import VertexWindow
from headgate.observe.flame import flame_tree
from headgate.observe.web.answers import FlameGraph, SubtaskChannels, SubtaskWaiting
from headgate.observe.web.endpoints import (
    BadRequest,
    Endpoints,
    Parameter,
    Request,
    subtask_of,
    whole_number,
)
from headgate.plan.execution_graph import task_id
from headgate.plan.job_graph import JobVertex

MAX_SAMPLED: Final = 32
"""Subtasks of one flame graph, the busiest."""
MAX_UNDER_WAY: Final = 16
ANSWER_S: Final = 10.0
STATE_S: Final = 5.0
"""Deadline of an answer about state."""
MAX_ENTRIES: Final = 1_000
MAX_CHANNELS: Final = 10_000

SUBTASK = Parameter("subtask", 0, "Which subtask.", 0)
WHY = (
    Parameter("seconds", 2.0, "How long to sample the limiting task.", 0.1, 30),
    Parameter("quick", False, "From counters alone, at once."),
)
FLAMEGRAPH = (
    Parameter("subtask", "all", "Give the number of a subtask, or all", pattern="all|[0-9]{1,9}"),
    Parameter("seconds", 2.0, "How long to take samples.", 0.05, MAX_SECONDS),
    Parameter("hertz", 100.0, "Samples a second.", 1, MAX_HERTZ),
    Parameter(
        "type",
        "full",
        "All time, or only that on a CPU or off it.",
        choices=("full", "on_cpu", "off_cpu"),
    ),
)
PEEK = (
    SUBTASK,
    Parameter("gate", 0, "Which input gate.", 0),
    Parameter("channel", None, "Which channel of the gate; none: all of them.", 0),
    Parameter("limit", 20, "So many records at most.", 1, MAX_ENTRIES),
)
STATE = (
    Parameter("uid", "", "The uid of the operator, or its name.", required=True),
    Parameter("state", "", "The name of the state.", required=True),
    Parameter(
        "key",
        "",
        "A key: by its declared type, a JSON literal, or a text; may be repeated.",
        required=True,
        most=MAX_STATE_KEYS,
    ),
    Parameter(
        "key-type",
        "",
        "What keys are that the program declares nothing of.",
        choices=("", "string", "int", "float", "bool", "bytes", "tuple", "json"),
    ),
)
CHANNELS = (
    SUBTASK,
    Parameter("gate", None, "Which input gate; none: all of them.", 0),
    Parameter("limit", 100, "So many channels at most.", 1, MAX_CHANNELS),
)

_Kind = TypeVar("_Kind", bound=Found)


JOB: Final = "/jobs/{job}"
VERTEX: Final = f"{JOB}/vertices/{{vertex}}"
ENDPOINTS: Final = Endpoints()


@ENDPOINTS.get(
    f"{JOB}/why",
    "What limits the job, and what to do about it",
    Diagnosis,
    parameters=WHY,
    statuses=(503,),
)
async def why(request: Request) -> Diagnosis:
    """Looks at the limiting task for some seconds, unless a quick answer is wanted."""
    observer = request.shown.observer
    request.shown.moment()  # it has been looked at, then
    if request.query["quick"]:
        return observer.quick_diagnosis()
    seconds = request.query["seconds"]
    return await request.services.background.run(lambda: observer.diagnose(seconds=seconds))


@ENDPOINTS.get(
    f"{VERTEX}/flamegraph",
    "Where the tasks spend their time",
    FlameGraph,
    parameters=FLAMEGRAPH,
    statuses=(409, 503),
)
async def flamegraph(request: Request) -> FlameGraph:
    """Samples of one subtask, or of the busiest ones together."""
    vertex, query = request.vertex, request.query
    what = SampleStacks(query["seconds"], query["hertz"])
    if query["subtask"] == "all":
        chosen = busiest(request.shown.moment().window.vertices[vertex.id])
    else:
        chosen = [subtask_of(vertex, whole_number(query["subtask"]))]
    tasks = [task_id(vertex.id, subtask) for subtask in chosen]
    found = await _inspect_all(request, tasks, what)
    samples = {
        subtask: answer
        for subtask, answer in zip(chosen, found, strict=True)
        if isinstance(answer, StackSamples)
    }
    if not samples:
        raise next(error for error in found if isinstance(error, Exception))
    return FlameGraph(
        samples=sum(sample.samples for sample in samples.values()),
        wall_ms=sum(sample.wall_ms for sample in samples.values()),
        cpu_ms=sum(sample.cpu_ms for sample in samples.values()),
        subtasks=list(samples),
        data=flame_tree(vertex.name, list(samples.values()), query["type"]),
    )


@ENDPOINTS.get(
    f"{VERTEX}/peek",
    "Records that wait in front of a subtask",
    SubtaskWaiting,
    parameters=PEEK,
    statuses=(409, 503),
)
async def peek(request: Request) -> SubtaskWaiting:
    """The records that wait in front of a subtask; none is taken away."""
    vertex, query = request.vertex, request.query
    subtask = subtask_of(vertex, query["subtask"])
    gate = gate_of(vertex, query["gate"])
    what = PeekRecords(gate, query["channel"], query["limit"])
    found = await _inspect(request, subtask, what, WaitingRecords)
    return SubtaskWaiting(**structs.asdict(found), subtask=subtask)


@ENDPOINTS.get(
    f"{VERTEX}/channels",
    "Channels of a subtask, the fullest first",
    SubtaskChannels,
    parameters=CHANNELS,
    statuses=(409, 503),
)
async def channels(request: Request) -> SubtaskChannels:
    """The channels of a subtask, those with the largest backlog first."""
    vertex, query = request.vertex, request.query
    subtask = subtask_of(vertex, query["subtask"])
    gate = None if query["gate"] is None else gate_of(vertex, query["gate"])
    what = ReadChannels(gate, query["limit"])
    found = await _inspect(request, subtask, what, ChannelTable)
    return SubtaskChannels(**structs.asdict(found), subtask=subtask)


@ENDPOINTS.get(
    f"{JOB}/state",
    "What a keyed state holds at some keys, now",
    ShownState,
    parameters=STATE,
    statuses=(409, 503),
)
async def state(request: Request) -> ShownState:
    """All keys of one task at one moment of it; nothing is changed."""
    job, query = request.shown.job, request.query

    def read() -> ShownState:
        names = query["uid"], query["state"]
        return job.shown_state(*names, query["key"], query["key-type"], STATE_S)

    try:
        return await request.services.background.run(read)
    except StateUnreadable as error:
        raise BadRequest(str(error), 409 if error.is_passing else 404) from error


async def _inspect(request: Request, subtask: int, what: Inspection, kind: type[_Kind]) -> _Kind:
    (found,) = await _inspect_all(request, [task_id(request.vertex.id, subtask)], what)
    if isinstance(found, BaseException):
        raise found
    assert isinstance(found, kind), f"{type(found)} is no answer to {what}"
    return found


async def _inspect_all(
    request: Request, tasks: Sequence[str], what: Inspection
) -> "list[Found | BaseException]":
    """For each task what was found, or why nothing was."""
    if request.services.inspections >= MAX_UNDER_WAY:
        raise BadRequest("the driver looks at many tasks already; ask again in a moment", 503)
    job = request.shown.job
    seconds = what.seconds if isinstance(what, SampleStacks) else 0.0
    request.services.inspections += 1
    try:
        futures = [asyncio.wrap_future(job.inspect(task, what, ANSWER_S)) for task in tasks]
        await asyncio.wait(futures, timeout=seconds + 2 * ANSWER_S)
    finally:
        request.services.inspections -= 1
    return [_outcome(task, future) for task, future in zip(tasks, futures, strict=True)]


def busiest(window: VertexWindow) -> list[int]:
    """The subtasks to be sampled for the whole vertex, in their order."""
    running = sorted(window.running, key=lambda task: -task.gain.busy_ms)[:MAX_SAMPLED]
    return sorted(task.subtask for task in running) or [0]


def gate_of(vertex: JobVertex, gate: int) -> int:
    """The number, if the vertex has that gate; raises BadRequest."""
    gates = len(vertex.gate_inputs)
    if gate >= gates:
        may = f"give 0 to {gates - 1}" if gates else "it is a source, nothing waits before it"
        raise BadRequest(f"the vertex has no gate {gate}; {may}", 404)
    return gate


def _outcome(task: str, future: "asyncio.Future[Found]") -> Found | BaseException:
    if not future.done():
        future.cancel()
        return InspectionFailed(task, f"it has not answered within {2 * ANSWER_S:g} s")
    return future.exception() or future.result()
