"""Every error Headgate raises on purpose. The type says who is guilty, the fields hold the facts.

HeadgateError
├── SettingsInvalid            a setting, or a file that it names, cannot be used
│   └── SettingsUnknown
├── PlanInvalid                a program cannot become a job
├── SparkUnready               tasks cannot run on Spark here and now
│   └── SparkMissing, JavaMissing, SessionFailed
├── SlotsShort
├── MemoryShort                the exchange has too little memory
│   └── InsufficientBuffers, JobExceedsMemory
├── PoolDestroyed, TaskCancelled, FlushFailed
├── UserFunctionFailed, RecordsFailing, FunctionUnpicklable, CodeUnloadable, RecordUncopyable
├── TaskStuck
├── ConnectorError             a source or sink fails at what it reads or writes
│   ├── PathUnusable
│   │   └── PartLost, FileGone
│   ├── KafkaUnready, KafkaRefused, OffsetsLost
│   ├── TableUnready, TableUnfit, RecordsLost, StreamUnfit
│   ├── LineTooLong, LineUndecodable, LineMalformed
│   └── DatabaseUnready, ServerUnreachable, ServerUnready, ServerUnfit, HttpRejected
├── FrameInvalid, SchemaInvalid, RecordUnfit, BatchUnfit
├── StateBroken, StateUnwritable, StateUnstorable, StateUnfit, BackendMissing
├── CheckpointError            a stored checkpoint cannot be read or written
│   └── CheckpointCorrupt, CheckpointMissing, CheckpointsDamaged, StateUnknown, StorageUnusable
├── CheckpointAbandoned, CheckpointsFailed, SavepointFailed, CommitOverdue
├── InspectionFailed           a task that runs could not be looked at
├── StateUnreadable            state of a job that runs could not be read
├── RestoreRefused             a checkpoint does not fit the program
│   ├── ProgramDiffers, StateUnclaimed, PlacesMoved, StateChanged
│   └── KeyGroupsDiffer, ChannelsDiffer, FinishedAlready, CheckpointUnsound
├── PartitionError             a task's output is not there, taken, finished or incomplete
│   └── PartitionNotFound, PartitionTaken, PartitionFinished, ProducerFailed
├── ElementBroken              bytes of a channel are no element
│   └── ElementTooLarge
├── EventUnclaimed, EventTooLarge, EventsUnsent, EventUnsendable
├── TransportError             between two task managers
│   ├── ConnectFailed, PeerLost, PeerSilent, PeerUnproven, PeerBusy, PeerReported
│   └── PeerBrokeProtocol      the other side sent what it must not
│       ├── FrameTooLong, FrameTruncated, FrameMalformed, FrameForged
│       ├── WrongVersion, UnknownMessage, BeforeHandshake
│       ├── UnknownReceiver, TooManyReceivers
│       └── SequenceGap, CreditOverdrawn, EventsOverdrawn
├── DriverUnreachable, DriverLost, ResultsRefused, TaskManagerLost, StartTimedOut
├── RunRefused, RunSuperseded, RunFailed
├── HarnessMisused             a test has used ``headgate.testing`` in a way that it does not work
└── JobFailed, JobCancelled, JobTakenOver, FutureCancelled
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from headgate.base.extras import install_command
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.base.redaction import is_secret, without_secrets
from headgate.base.user_traceback import user_traceback


class HeadgateError(Exception):
    """Base of all errors that Headgate raises on purpose; their words show no secrets."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[object, ...]:
        # A worker's error reaches the driver pickled: message and facts, past the constructor.
        return _revive, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        # IPython asks for it: in a cell there is no sys.excepthook.
        return user_traceback(self).splitlines()


def _revive(kind: type[HeadgateError], args: tuple[object, ...]) -> HeadgateError:
    return kind.__new__(kind, *args)


class SettingsInvalid(HeadgateError):
    """A setting, or a file that a setting names, cannot be used."""

    def __init__(self, key: str, problem: str) -> None:
        refused = " cannot be used" if is_secret(key) else ""  # what follows "secret:" is hidden
        super().__init__(f"setting {key}{refused}: {problem}")
        self.key = key
        self.problem = problem


class SettingsUnknown(SettingsInvalid):
    """Settings that have no effect, where ``headgate.strict`` wants none such."""

    def __init__(self, keys: Sequence[str], problems: Sequence[str]) -> None:
        problem = "; ".join(problems)
        super().__init__(keys[0], f"{problem} (refused, because headgate.strict is true)")
        self.keys = tuple(keys)


class PlanInvalid(HeadgateError):
    """A program cannot be run as it was written; ``operator`` names the culprit if there is one."""

    def __init__(self, problem: str, operator: str | None = None) -> None:
        super().__init__(problem if operator is None else f"operator {operator!r} {problem}")
        self.problem = problem
        self.operator = operator


class SparkUnready(HeadgateError):
    """Tasks cannot run on Spark here and now; the message says what to change."""


class SparkMissing(SparkUnready):
    """PySpark is not installed, or is a version that Headgate does not know."""

    def __init__(self, found: str | None = None) -> None:
        what = f"PySpark {found} is not a known version" if found else "PySpark is not installed"
        super().__init__(f"{what}; run {install_command('spark')}")
        self.found = found


class JavaMissing(SparkUnready):
    """No Java that can run Spark; ``rejected`` says where was looked and why it did not do."""

    def __init__(self, rejected: tuple[str, ...]) -> None:
        super().__init__(
            f"no Java that can run Spark: run {install_command('spark')}, which brings one, "
            f"or set JAVA_HOME to a Java 17 or 21 (looked at {'; '.join(rejected)})"
        )
        self.rejected = rejected


class SessionFailed(SparkUnready):
    """Spark did not start, or cannot be used in the way it was started."""


class SlotsShort(HeadgateError):
    """Spark cannot run as many tasks at the same time as the job needs."""

    def __init__(
        self, needed: int, total: int, busy: int, excluded: Sequence[str] = (), shared: int = 1
    ) -> None:
        """``excluded``: executors that Spark gives no tasks after failures, not in the total.

        ``shared``: how many subtasks of an operator share a slot.
        """
        free = max(0, total - busy)
        without = f", without the excluded executors {', '.join(excluded)}" if excluded else ""
        advice = (
            "wait until Spark takes them back (spark.excludeOnFailure.timeout), or "
            if excluded
            else ""
        )
        advice += "lower the parallelism, end other jobs" if busy else "lower the parallelism"
        sharing = f" (each for up to {shared} subtasks of an operator)" if shared > 1 else ""
        super().__init__(
            f"the job needs {needed} slots{sharing} and Spark has {free} free ({total} in total, "
            f"{busy} busy{without}); {advice}, or give Spark more cores (local: a new session with "
            f"master local[{needed + busy}], cluster: more executors or cores)"
        )
        self.needed = needed
        self.total = total
        self.busy = busy
        self.free = free
        self.excluded = tuple(excluded)


class MemoryShort(HeadgateError):
    """The arena of a task manager could not be allocated in full."""

    def __init__(self, required: int, allocated: int, message: str = "") -> None:
        self.required = required
        self.allocated = allocated
        self.missing = required - allocated
        super().__init__(
            message
            or f"network memory: {required} bytes required, {allocated} allocated, "
            f"{self.missing} missing; lower taskmanager.memory.network.max "
            f"or give the worker more memory"
        )


class InsufficientBuffers(MemoryShort):
    """A pool, gate or connection needs more buffers than the task manager has left."""

    def __init__(self, who: str, required: int, available: int, total: int) -> None:
        super().__init__(
            required,
            available,
            f"insufficient number of network buffers for {who}: {required} required, "
            f"{available} available of {total} in total; raise taskmanager.memory.network.min "
            f"and .max, or lower the parallelism",
        )
        self.who = who
        self.available = available
        self.total = total


class JobExceedsMemory(MemoryShort):
    """A job's tasks need more exchange memory than is allowed; raised before the job starts."""

    def __init__(
        self, job: str, required: int, allocated: int, segment_bytes: int, parts: str
    ) -> None:
        self.required_bytes = required * segment_bytes
        super().__init__(
            required,
            allocated,
            f"job {job!r} needs {required} network buffers of {segment_bytes} bytes in its busiest "
            f"task manager ({parts}), and taskmanager.memory.network.max allows {allocated}; raise "
            f"it to {self.required_bytes} bytes or more, or lower the parallelism",
        )
        self.job = job


class PoolDestroyed(HeadgateError):
    """A buffer was requested from a pool whose owner has ended."""


class TaskCancelled(HeadgateError):
    """A task was to wait, or used a gate, channel or writer, after its cancellation."""


class FlushFailed(HeadgateError):
    """A flush that was due by time failed earlier; raised at the next emit."""


class UserFunctionFailed(HeadgateError):
    """A user's function raised; its own exception is the cause."""

    def __init__(self, operator: str, error: BaseException, doing: str = "") -> None:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        super().__init__(f"operator {operator!r} failed{doing and ' ' + doing}: {what}")
        self.operator = operator


class RecordsFailing(HeadgateError):
    """An operator that skips records which fail has skipped too many in a row."""

    def __init__(self, operator: str, records: int, problem: str) -> None:
        super().__init__(
            f"operator {operator!r} has skipped {records:,} records in a row, the last one because "
            f"of {problem}; mend the function or the input, give on_error() dead letters to keep "
            f"such records, or raise pipeline.on-error.max-in-a-row (0: any number)"
        )
        self.operator = operator
        self.records = records


class FunctionUnpicklable(HeadgateError):
    """A user's function, or something that it holds, cannot be pickled."""

    def __init__(
        self,
        operator: str,
        role: str,
        culprit: str,
        problem: str,
        advice: str = "create it in open(), or inside of the function",
    ) -> None:
        super().__init__(
            f"operator {operator!r}: its {role} cannot be sent to the workers, because {culprit} "
            f"cannot be pickled ({problem}); {advice}"
        )
        self.operator = operator
        self.role = role
        self.culprit = culprit
        self.problem = problem


_OWN_PACKAGES: Final = frozenset(("cloudpickle", "msgspec", "pyarrow", "yaml"))
"""What Headgate itself imports in a worker."""


class CodeUnloadable(HeadgateError):
    """The worker cannot load the functions of the job; ``module`` is the one that it misses."""

    def __init__(self, problem: str, module: str = "") -> None:
        if module.partition(".")[0] == "headgate":
            advice = (
                "Headgate itself is not there: send it along with headgate run --ship, or install "
                "the same Headgate in the Python of every worker, which spark.pyspark.python names "
                "(with Spark Connect only the latter, for the Python that the server has in "
                "PYSPARK_PYTHON)"
            )
        elif module.partition(".")[0] in _OWN_PACKAGES:
            advice = (
                f"Headgate needs {module!r}, and the Python of the workers does not have it: it "
                f"may be another Python than the driver's. Let PYSPARK_PYTHON or "
                f"spark.pyspark.python name one in which Headgate is installed, before the session "
                f"is made, or send all packages along with headgate run --ship"
            )
        elif module:
            advice = (
                f"module {module!r} is not there: ship it with env.add_python_file(…) or "
                f"spark-submit --py-files, ship all that the driver can import with headgate run "
                f"--ship, or install it on every worker"
            )
        else:
            advice = (
                "let driver and workers have the same system, Python and packages (PYSPARK_PYTHON "
                "names the Python of the workers), and ship your own modules with "
                "env.add_python_file(…) or spark-submit --py-files"
            )
        super().__init__(f"the worker cannot load the job's functions ({problem}); {advice}")
        self.problem = problem
        self.module = module


class RecordUncopyable(HeadgateError):
    """A mutable record is handed from operator to operator, and pickle cannot copy it."""

    def __init__(self, operator: str, error: BaseException) -> None:
        super().__init__(
            f"a record for operator {operator!r} cannot be copied ({error}); records must be "
            f"picklable, or turn copies off with pipeline.object-reuse: true"
        )
        self.operator = operator


class TaskStuck(HeadgateError):
    """A user's function did not come back in time after its task was cancelled."""

    def __init__(self, tasks: str) -> None:
        super().__init__(
            f"task {tasks} did not come back from its user's code after its cancellation; "
            f"let functions that wait do so with a time-out"
        )
        self.tasks = tasks


class ConnectorError(HeadgateError):
    """Trouble of a source or sink with the world that it meets."""

    operator = ""
    """Which one, once that is known."""


class PathUnusable(ConnectorError):
    """A file or folder cannot be found, read or written."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class PartLost(PathUnusable):
    """A part file that a checkpoint names is gone or cut, so that its records would be missing."""


class FileGone(PathUnusable):
    """A file that was listed is not there any more, or is another one, when it is to be read."""


class DatabaseUnready(ConnectorError):
    """A database cannot be reached, or does not take a transaction in time."""


class KafkaUnready(ConnectorError):
    """No broker answers, or none that leads the partition; that may pass."""


class KafkaRefused(ConnectorError):
    """The brokers answer, and refuse: wrong credentials, missing rights, an unknown topic."""


class OffsetsLost(ConnectorError):
    """Kafka has deleted the records that a source would have read next."""


class TableUnready(ConnectorError):
    """A table of a lake cannot be read or written now, or others commit to it all the time."""


class TableUnfit(ConnectorError):
    """A table is missing, another than before, or of a form that a source or sink cannot use."""


class StreamUnfit(ConnectorError):
    """A named input or output of a job is missing, another than before, or of another schema."""


class ServerUnready(ConnectorError):
    """A server of streams or an HTTP endpoint does not answer, or cannot now; that may pass."""


class ServerUnfit(ConnectorError):
    """A server will never do what the program asks of it, however long one waits."""


class HttpRejected(ConnectorError):
    """An HTTP endpoint has answered that it does not take a batch, and would not take it later."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class RecordsLost(ConnectorError):
    """What a checkpoint relies on is gone from the system outside: records would be missing."""


class ServerUnreachable(ConnectorError):
    """The server of a source refuses, is unknown, or broke the connection."""

    def __init__(self, address: str, attempts: int, problem: str) -> None:
        super().__init__(
            f"no connection to {address} after {attempts} attempt{'s'[: attempts != 1]}: "
            f"{problem}; start the server first, or raise max_retry"
        )
        self.address = address
        self.attempts = attempts
        self.problem = problem


class LineTooLong(ConnectorError):
    """A line is longer than the ``max_line_bytes`` of its source."""

    def __init__(self, where: str, limit: int) -> None:
        super().__init__(
            f"{where}: a line of more than {limit} bytes; "
            f"raise max_line_bytes, or check the delimiter"
        )
        self.where = where
        self.limit = limit


class LineUndecodable(ConnectorError):
    """A line holds bytes that are no text in the encoding of its source."""

    def __init__(self, where: str, line: int, encoding: str, problem: str) -> None:
        super().__init__(
            f"{where}, line {line}: no {encoding} text ({problem}); "
            f"give the right encoding, or errors='replace'"
        )
        self.where = where
        self.line = line
        self.encoding = encoding


class LineMalformed(ConnectorError):
    """A line of a file is no record of the format that the file is read as."""

    def __init__(self, where: str, line: int, problem: str) -> None:
        super().__init__(f"{where}, line {line}: {problem}")
        self.where = where
        self.line = line
        self.problem = problem


class FrameInvalid(HeadgateError):
    """A DataFrame that cannot be the source of a stream."""

    def __init__(self, problem: str, method: str = "from_dataframe()") -> None:
        super().__init__(f"{method} {problem}")
        self.problem = problem


class SchemaInvalid(HeadgateError):
    """A schema that the rows of a stream cannot have."""

    def __init__(self, schema: object, problem: str) -> None:
        super().__init__(f"to_dataframe(): the schema {shown(schema)} {problem}")
        self.schema = schema
        self.problem = problem


class RecordUnfit(HeadgateError):
    """A record that is no row of the declared schema; ``column`` is empty if all of it is wrong."""

    def __init__(self, operator: str, column: str, value: object, problem: str) -> None:
        where = f"column {column!r}: " if column else ""
        super().__init__(f"operator {operator!r}: {where}{shown(value)} {problem}")
        self.operator = operator
        self.column = column
        self.problem = problem


class BatchUnfit(HeadgateError):
    """A batch of columns that an operator cannot use: what came, and what was expected."""

    def __init__(self, problem: str, operator: str = "") -> None:
        super().__init__(f"operator {operator!r}: {problem}" if operator else problem)
        self.problem = problem
        self.operator = operator
        """Empty: not known yet."""

    def at(self, operator: str) -> "BatchUnfit":
        """A copy that names the operator, once it is known."""
        return BatchUnfit(self.problem, self.operator or operator)


def shown(value: object, limit: int = 200) -> str:
    """A value as an error shows it."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"a {type(value).__name__} whose repr fails ({error})"
    return text if len(text) <= limit else f"{text[:limit]}…"


class StateBroken(HeadgateError):
    """State cannot be written to a snapshot, or what was written cannot be read again."""


class StateUnwritable(HeadgateError):
    """What an operator holds cannot be pickled, or changed while it was written."""

    def __init__(self, operator: str, problem: str) -> None:
        super().__init__(
            f"the state of operator {operator!r} cannot be written: {problem}; "
            f"keep only what can be pickled in state"
        )
        self.operator = operator
        self.problem = problem


class StateUnfit(HeadgateError):
    """Rows, or other changes, that cannot become the state of an operator in a savepoint."""

    def __init__(self, operator: str, state: str, problem: str) -> None:
        whose = f"the state {state!r} of " if state else ""
        super().__init__(f"{whose}operator {operator!r}: {problem}")
        self.operator = operator
        self.state = state
        self.problem = problem


class StateUnstorable(HeadgateError):
    """RocksDB cannot open, write or read its files: the disk is full, the folder read-only."""

    def __init__(self, folder: str, problem: str, operator: str = "") -> None:
        whose = f"the state of operator {operator!r}" if operator else "state"
        super().__init__(
            f"{whose} cannot be kept in {folder}: {problem}; make room there, or name another "
            f"folder with state.backend.rocksdb.localdir"
        )
        self.folder = folder
        self.problem = problem
        self.operator = operator


class BackendMissing(HeadgateError):
    """The setting of the state backend asks for a package that is not there."""

    def __init__(self, where: str = "here") -> None:
        super().__init__(
            f"state.backend.type is rocksdb, and rocksdict is not installed {where}; "
            f"run {install_command('rocksdb')}, or set it to hashmap"
        )


class CheckpointError(HeadgateError):
    """Trouble with what is stored at ``path``."""

    def __init__(self, path: str, problem: str, advice: str) -> None:
        super().__init__(f"{path}: {problem}; {advice}")
        self.path = path
        self.problem = problem
        self.advice = advice


class CheckpointCorrupt(CheckpointError):
    """A file is there, but cut, changed, or of something else."""

    def __init__(
        self, path: str, problem: str, advice: str = "restore from another checkpoint"
    ) -> None:
        super().__init__(path, problem, advice)


class CheckpointMissing(CheckpointError):
    """There is no checkpoint at this path, or a file that it names is gone."""


class CheckpointsDamaged(CheckpointError):
    """All that the job could go on from is damaged, and nobody has said that it may begin anew."""

    def __init__(self, path: str, job: str, damages: tuple[str, ...]) -> None:
        super().__init__(
            path,
            f"job {job!r} has no checkpoint here that is whole ({'; '.join(damages)})",
            "bring the files back, or begin without them: headgate run "
            "--ignore-damaged-checkpoints (execution.state-recovery.ignore-damaged-checkpoints: "
            "true) begins anew, or with --from goes on from a savepoint; what sinks have "
            "committed since then is written again",
        )
        self.job = job
        self.damages = damages


class StateUnknown(CheckpointError):
    """The checkpoint has no operator, or no state, of this name."""


class StorageUnusable(CheckpointError):
    """The file system refuses, or does not answer."""


class CheckpointAbandoned(HeadgateError):
    """The checkpoint was given up while a task still wrote its part; nothing of it is left."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was given up; nothing more is written to it")
        self.path = path


class CheckpointsFailed(HeadgateError):
    """The job cannot take checkpoints, so it would lose what it does."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the job's checkpoints fail: {problem}")
        self.problem = problem


class SavepointFailed(HeadgateError):
    """Somebody wanted a savepoint, and perhaps the job to end with it."""

    def __init__(self, directory: str, problem: str) -> None:
        super().__init__(f"savepoint {directory}: {problem}")
        self.directory = directory
        self.problem = problem


class InspectionFailed(HeadgateError):
    """Somebody wanted to look at a task while it runs; the job is none the worse for it."""

    def __init__(self, task: str, problem: str) -> None:
        super().__init__(f"task {task} cannot be inspected: {problem}")
        self.task = task
        self.problem = problem


class StateUnreadable(HeadgateError):
    """State of a running job cannot be read from outside; the job is none the worse for it."""

    def __init__(self, problem: str, *, is_passing: bool = False) -> None:
        """``is_passing``: a task is busy, or the job restarts; later there may be an answer."""
        super().__init__(problem)
        self.is_passing = is_passing


class CommitOverdue(HeadgateError):
    """What was prepared for a complete checkpoint is not committed in time."""

    def __init__(self, task: str, checkpoint: int, timeout_ms: int) -> None:
        super().__init__(
            f"task {task} has been committing checkpoint {checkpoint} for more than {timeout_ms} "
            f"ms: a sink waits for the system it writes to, or notify_checkpoint_complete() of a "
            f"function has not returned; the log of its worker shows where, "
            f"execution.checkpointing.timeout is how long it may take"
        )
        self.task = task
        self.checkpoint = checkpoint
        self.timeout_ms = timeout_ms


class RestoreRefused(HeadgateError):
    """The job cannot go on from this checkpoint as it is written now."""

    def __init__(self, checkpoint: int, problem: str) -> None:
        super().__init__(f"the job cannot go on from checkpoint {checkpoint}: {problem}")
        self.checkpoint = checkpoint
        self.problem = problem


class ProgramDiffers(RestoreRefused):
    """The checkpoint is of another program, or all uids have changed."""

    def __init__(self, checkpoint: int, job: str) -> None:
        super().__init__(
            checkpoint,
            f"it is of job {job!r} and has state of none of this program's operators; give the "
            f"path of a checkpoint of this program, or give the operators the uids they had",
        )
        self.job = job


class StateUnclaimed(RestoreRefused):
    """Operators that have left state are not in the program."""

    def __init__(self, checkpoint: int, operators: tuple[str, ...]) -> None:
        super().__init__(
            checkpoint,
            f"it has state of {', '.join(operators)}, which this program does not have; give the "
            f"operator its old uid, or leave that state behind with --allow-non-restored-state or "
            f"execution.state-recovery.ignore-unclaimed-state: true",
        )
        self.operators = operators


class PlacesMoved(RestoreRefused):
    """Operators without a uid go by their place, and others stand there now."""

    def __init__(self, checkpoint: int, operator: str, other: str, uid: str) -> None:
        super().__init__(
            checkpoint,
            f"where operator {operator!r} was there is {other!r} now, which would get its state: "
            f"operators were added or taken away before it; call uid({uid!r}) on {operator!r}, "
            f"which is what it went by, and give the others uids too",
        )
        self.operator = operator
        self.other = other


class KeyGroupsDiffer(RestoreRefused):
    """Keyed state is cut into another number of groups."""

    def __init__(self, checkpoint: int, operator: str, had: int, has: int) -> None:
        super().__init__(
            checkpoint,
            f"operator {operator!r} had a maximum parallelism of {had} and has {has}; "
            f"call set_max_parallelism({had})",
        )
        self.operator = operator
        self.had = had
        self.has = has


class ChannelsDiffer(RestoreRefused):
    """The checkpoint was unaligned, and its records in flight fit into no channel."""

    def __init__(self, checkpoint: int, edge: str, problem: str) -> None:
        super().__init__(
            checkpoint,
            f"it holds records in flight {edge}, and {problem}; take a savepoint with the old "
            f"program and go on from that, or leave the two operators as they were",
        )
        self.edge = edge


class FinishedAlready(RestoreRefused):
    """What has finished gets no more input, so nothing that runs may stand before it."""

    def __init__(self, checkpoint: int, operator: str, problem: str) -> None:
        super().__init__(
            checkpoint,
            f"operator {operator!r} had finished there, and {problem}; go on from an earlier "
            f"checkpoint, or leave what stands before it as it was",
        )
        self.operator = operator


class StateChanged(RestoreRefused):
    """A state is opened as another kind, or with a type that its values do not have."""

    def __init__(
        self, checkpoint: int, operator: str, state: str, had: str, has: str, why: str = ""
    ) -> None:
        reason = f" ({why})" if why else ""
        super().__init__(
            checkpoint,
            f"{state} of operator {operator!r} was {had} there and is {has} now{reason}; give it "
            f"the kind and type it had, or another name, under which it begins empty",
        )
        self.operator = operator
        self.state = state
        self.had = had
        self.has = has


class CheckpointUnsound(RestoreRefused):
    """What the metadata says cannot be."""

    def __init__(self, checkpoint: int, problem: str) -> None:
        super().__init__(checkpoint, f"{problem}; go on from another checkpoint")


class PartitionError(HeadgateError):
    """Trouble with one task's output."""

    def __init__(self, partition: PartitionId, problem: str) -> None:
        super().__init__(f"partition {partition!r} {problem}")
        self.partition = partition


class PartitionNotFound(PartitionError):
    """The producer's process does not know the partition (not yet, or no more)."""

    def __init__(self, partition: PartitionId, where: str = "here") -> None:
        super().__init__(
            partition, f"not found {where}: its task has not started there, or was released"
        )


class PartitionTaken(PartitionError):
    """A partition was registered twice, or a pipelined subpartition read twice."""


class PartitionFinished(PartitionError):
    """Data was added to a partition that is finished or released."""


class ProducerFailed(PartitionError):
    """The task that wrote the partition failed; what it had sent is not the whole."""

    def __init__(self, partition: PartitionId, cause: str) -> None:
        super().__init__(partition, f"ended early because its producer failed: {cause}")
        self.cause = cause


class ElementBroken(HeadgateError):
    """The bytes of a channel do not form elements."""


class ElementTooLarge(ElementBroken):
    """An element is longer than ``exchange.max-element-bytes``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"an element of {size} bytes exceeds the limit of {limit} bytes; "
            f"raise exchange.max-element-bytes or emit smaller records"
        )
        self.size = size
        self.limit = limit


class EventUnclaimed(HeadgateError):
    """A task event reached a producer that has no subscriber for it."""

    def __init__(self, partition: PartitionId, event: str) -> None:
        super().__init__(f"nobody receives task event {event} at partition {partition!r}")
        self.partition = partition


class EventTooLarge(HeadgateError):
    """An event is longer than ``exchange.max-event-bytes``; it is refused where it is sent."""

    def __init__(self, event: str, size: int, limit: int) -> None:
        super().__init__(
            f"event {event} has {size} bytes, the limit is {limit}; "
            f"raise exchange.max-event-bytes or send less in it"
        )
        self.size = size
        self.limit = limit


class EventsUnsent(HeadgateError):
    """A task sends events to a producer that is not there yet, and sends too many."""

    def __init__(self, partition: PartitionId, count: int) -> None:
        super().__init__(
            f"{count} task events wait for the producer of partition {partition!r}, which has not "
            f"started yet; send events when its data has arrived"
        )
        self.partition = partition
        self.count = count


class EventUnsendable(HeadgateError):
    """A task event has an attribute that is no plain data; it is refused where it is sent."""

    def __init__(self, event: str, attribute: str, problem: str) -> None:
        super().__init__(
            f"task event {event} cannot travel: its attribute {attribute!r} {problem}; let it hold "
            f"plain values, lists, tuples, sets and dicts, or override to_bytes and from_bytes"
        )
        self.event = event
        self.attribute = attribute


class TransportError(HeadgateError):
    """Trouble between two task managers; ``peer`` names the other side."""

    def __init__(self, peer: PeerName, problem: str) -> None:
        super().__init__(f"peer {peer}: {problem}")
        self.peer = peer
        self.problem = problem


class ConnectFailed(TransportError):
    """No connection to the peer came about."""


class PeerLost(TransportError):
    """The peer died, closed or reset the connection while it was in use."""


class PeerSilent(TransportError):
    """The peer's process hangs: nothing came from it for longer than the heartbeat time-out."""


class PeerUnproven(TransportError):
    """The peer could not prove that it knows the job's secret."""


class PeerBusy(TransportError):
    """The peer ended the connection because too many others wait there to be proven."""


class PeerReported(TransportError):
    """The peer answered a request with an error of its own."""


class PeerBrokeProtocol(TransportError):
    """The peer sent something that the protocol forbids."""


class FrameTooLong(PeerBrokeProtocol):
    """A frame announces more bytes than its type may have."""

    def __init__(self, peer: PeerName, length: int, limit: int, what: str) -> None:
        super().__init__(peer, f"{what} frame of {length} bytes, the limit is {limit}")
        self.length = length
        self.limit = limit


class FrameTruncated(PeerBrokeProtocol):
    """The connection ended in the middle of a frame."""


class FrameMalformed(PeerBrokeProtocol):
    """A frame whose bytes contradict its type."""


class FrameForged(PeerBrokeProtocol):
    """A frame does not carry the code that only the proven peer can make for it."""

    def __init__(self, peer: PeerName, number: int) -> None:
        super().__init__(
            peer,
            f"message {number} of this connection carries a wrong authentication code, so it was "
            f"changed, repeated, left out or invented on the way; find out what stands between "
            f"the two machines",
        )
        self.number = number


class WrongVersion(PeerBrokeProtocol):
    """The peer speaks another version of the protocol."""

    def __init__(self, peer: PeerName, theirs: int, ours: int) -> None:
        super().__init__(
            peer, f"speaks protocol version {theirs}, this side {ours}; install the same Headgate"
        )
        self.theirs = theirs
        self.ours = ours


class UnknownMessage(PeerBrokeProtocol):
    """A frame type that this side does not know, or that this side never receives."""


class BeforeHandshake(PeerBrokeProtocol):
    """A message that may only follow the handshake came before its end."""


class UnknownReceiver(PeerBrokeProtocol):
    """A message for a channel that was never requested on this connection."""

    def __init__(self, peer: PeerName, receiver: ChannelId, what: str) -> None:
        super().__init__(peer, f"{what} for channel {receiver}, which it never requested")
        self.receiver = receiver


class TooManyReceivers(PeerBrokeProtocol):
    """A peer has requested for more channels than any worker has, and ended none of them."""

    def __init__(self, peer: PeerName, limit: int) -> None:
        super().__init__(peer, f"it requested for more than {limit} channels")
        self.limit = limit


class SequenceGap(PeerBrokeProtocol):
    """A channel's buffers came out of order, or one is missing or doubled."""

    def __init__(self, peer: PeerName, channel: ChannelId, expected: int, got: int) -> None:
        super().__init__(peer, f"channel {channel} expected buffer {expected} and got {got}")
        self.channel = channel
        self.expected = expected
        self.got = got


class CreditOverdrawn(PeerBrokeProtocol):
    """A data buffer came for which no credit had been given."""


class EventsOverdrawn(PeerBrokeProtocol):
    """More events came in a channel than it keeps for its reader; they cost no credit."""

    def __init__(self, peer: PeerName, channel: ChannelId, waiting: int, size: int) -> None:
        super().__init__(
            peer,
            f"channel {channel} has {waiting} bytes of events that were not read, "
            f"and {size} more came",
        )
        self.channel = channel
        self.waiting = waiting


class DriverUnreachable(HeadgateError):
    """No connection from a worker to the driver came about."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(
            f"cannot reach the driver at {address}: {problem}; set spark.driver.host (with Spark "
            f"Connect: jobmanager.rpc.address) to an address of the driver that the workers can "
            f"connect to, and let firewalls pass it"
        )
        self.address = address
        self.problem = problem


class DriverLost(HeadgateError):
    """The control connection to the driver has ended; the tasks of this worker end with it."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"the driver at {address} is gone: {problem}; see its log for the reason")
        self.address = address
        self.problem = problem


class RunRefused(HeadgateError):
    """The driver does not want this task manager, for instance because the job is over."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver refuses this task manager: {reason}")
        self.reason = reason


class RunSuperseded(HeadgateError):
    """A task manager of a new attempt has registered for a slot of this one."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"a new attempt has begun: slot {slot} has registered once more")
        self.slot = slot


class RunFailed(HeadgateError):
    """Raised in Spark, so that it does not take the rows that have come for all of them."""


class ResultsRefused(HeadgateError):
    """Records that end in the driver cannot be read there, or whatever takes them has failed."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"records have reached the driver, which {problem}; let their classes be importable "
            f"in the driver, too, and let whatever takes them there not raise"
        )
        self.problem = problem


class TaskManagerLost(HeadgateError):
    """A task manager of the job is gone."""

    def __init__(self, who: str, problem: str) -> None:
        super().__init__(
            f"{who} is lost: {problem}; see the log of its Spark executor, and give the workers "
            f"more memory if it was killed"
        )
        self.who = who
        self.problem = problem


class StartTimedOut(HeadgateError):
    """Task managers have not come, or tasks have not restored their state and opened."""

    def __init__(self, awaited: str, timeout_ms: float) -> None:
        super().__init__(
            f"the job has not started within {timeout_ms / 1000:g} s: it waits for {awaited}; see "
            f"the logs of the Spark executors, or raise task.start.timeout"
        )
        self.awaited = awaited
        self.timeout_ms = timeout_ms


class JobFailed(HeadgateError):
    """A job has failed; the traceback of the root cause comes first."""

    def __init__(self, job: str, message: str, operator: str = "", traceback: str = "") -> None:
        where = f" in operator {operator!r}" if operator else ""
        what = message.removeprefix(f"operator {operator!r} failed: ") if operator else message
        text = f"job {job!r} failed{where}: {what}"
        super().__init__(f"{traceback.rstrip()}\n\n{text}" if traceback else text)
        self.job = job
        self.operator = operator
        self.summary = text


class JobCancelled(HeadgateError):
    """A job was cancelled before it had finished."""

    def __init__(self, job: str, reason: str) -> None:
        super().__init__(f"job {job!r} was cancelled: {reason}")
        self.job = job
        self.reason = reason


class JobTakenOver(HeadgateError):
    """A job with the same id and folder was started elsewhere: this driver counts as dead."""

    def __init__(self, job: str, claim: str, who: str = "", *, at_once: bool = False) -> None:
        """``claim``: of the other driver; ``at_once``: both have begun at the same moment."""
        what = "has claimed" if at_once else "has taken over"
        when = " at the same moment" if at_once else ""
        super().__init__(
            f"another driver {what} job {job!r}{when} ({f'{who}, ' if who else ''}{claim}), so "
            f"this one ends; let one driver at a time run a job id"
        )
        self.job = job
        self.claim = claim
        self.who = who


class FutureCancelled(HeadgateError):
    """The answer of a future was asked for after its ``cancel()``."""

    def __init__(self) -> None:
        super().__init__(
            "this future was cancelled, so it has no result; the job goes on: ask its client again"
        )


class HarnessMisused(HeadgateError):
    """A test has used ``headgate.testing`` in a way that it does not work."""


def raise_user_error(error: BaseException, operator: str, doing: str = "") -> NoReturn:
    """Raise what an operator's user code raised, wrapped so that it names the operator.

    Headgate's own errors stay as they are. A connector's error, which knows a path or a server,
    learns which operator it belongs to. Call it in ``except (Exception, SystemExit)``.
    """
    if isinstance(error, HeadgateError):
        if isinstance(error, ConnectorError) and not error.operator:
            error.operator = operator
        raise error.at(operator) if isinstance(error, BatchUnfit) else error
    raise UserFunctionFailed(operator, error, doing) from error
