"""Errors between the driver and the task managers of a job, and of the job's code on its way.

HeadgateError
├── FunctionUnpicklable    a user's function cannot travel to the workers
├── CodeUnloadable         a worker cannot load the job's code
├── DriverUnreachable      a worker has found no way to the driver
├── DriverLost             the driver died, hung up or is silent
├── ResultsRefused         the driver cannot read or take the records of a sink
├── RunRefused             the driver has no use for this task manager
├── TaskStuck              a user's function does not come back
├── CommitOverdue          a task commits a checkpoint and does not come to an end
├── RunSuperseded          a new attempt has taken the place of this one
├── JobTakenOver           another driver goes on with the job of this one
├── TaskManagerLost        a task manager died, hung up, is silent, or never came
├── StartTimedOut          the tasks of a job have not all started in time
├── CheckpointsFailed      too many checkpoints in a row came to nothing
├── SavepointFailed        a savepoint was not taken, or the job has not ended with it
├── SlotsShort             Spark has fewer free slots than the job needs
├── RunFailed              the rows of a DataFrame are not all there, because the job failed
├── JobFailed              a job has failed; carries the root cause
├── JobCancelled           a job was cancelled
└── FutureCancelled        a program has cancelled the future that it asks for its result
"""

from headgate.base.errors import HeadgateError


class FunctionUnpicklable(HeadgateError):
    """A user's function, or something that it holds, cannot be pickled."""

    def __init__(self, operator: str, role: str, culprit: str, problem: str) -> None:
        super().__init__(
            f"operator {operator!r}: its {role} cannot be sent to the workers, because {culprit} "
            f"cannot be pickled ({problem}); create it in open(), or inside of the function"
        )
        self.operator = operator
        self.role = role
        self.culprit = culprit
        self.problem = problem


class CodeUnloadable(HeadgateError):
    """The worker cannot load the functions of the job; ``module`` is the one that it misses."""

    def __init__(self, problem: str, module: str = "") -> None:
        if module.partition(".")[0] == "headgate":
            advice = (
                "Headgate itself is not there: install the same Headgate in the Python of every "
                "worker, which spark.pyspark.python names"
            )
        elif module:
            advice = (
                f"module {module!r} is not there: ship it with env.add_python_file(…) or "
                f"spark-submit --py-files, or install it on every worker"
            )
        else:
            advice = (
                "let driver and workers have the same Python and packages, and ship your own "
                "modules with env.add_python_file(…) or spark-submit --py-files"
            )
        super().__init__(f"the worker cannot load the job's functions ({problem}); {advice}")
        self.problem = problem
        self.module = module


class DriverUnreachable(HeadgateError):
    """No connection from a worker to the driver came about."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(
            f"cannot reach the driver at {address}: {problem}; set spark.driver.host to an "
            f"address of the driver that the workers can connect to, and let firewalls pass it"
        )
        self.address = address
        self.problem = problem


class DriverLost(HeadgateError):
    """The control connection to the driver has ended; the tasks of this worker end with it."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"the driver at {address} is gone: {problem}; see its log for the reason")
        self.address = address
        self.problem = problem


class ResultsRefused(HeadgateError):
    """Records that end in the driver cannot be read there, or whatever takes them has failed."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"records have reached the driver, which {problem}; let their classes be importable "
            f"in the driver, too, and let whatever takes them there not raise"
        )
        self.problem = problem


class RunRefused(HeadgateError):
    """The driver does not want this task manager, for instance because the job is over."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver refuses this task manager: {reason}")
        self.reason = reason


class TaskStuck(HeadgateError):
    """A user's function did not come back in time after its task was cancelled."""

    def __init__(self, tasks: str) -> None:
        super().__init__(
            f"task {tasks} did not come back from its user's code after its cancellation; "
            f"let functions that wait do so with a time-out"
        )
        self.tasks = tasks


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


class RunSuperseded(HeadgateError):
    """A task manager of a new attempt has registered for a slot of this one."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"a new attempt has begun: slot {slot} has registered once more")
        self.slot = slot


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


class SlotsShort(HeadgateError):
    """Spark cannot run as many tasks at the same time as the job needs."""

    def __init__(self, needed: int, total: int, busy: int) -> None:
        free = max(0, total - busy)
        super().__init__(
            f"the job needs {needed} slots and Spark has {free} free ({total} in total, {busy} "
            f"busy); lower the parallelism, end other jobs, or give Spark more cores (local: "
            f"master local[{max(needed + busy, needed)}], cluster: more executors or cores)"
        )
        self.needed = needed
        self.total = total
        self.busy = busy
        self.free = free


class RunFailed(HeadgateError):
    """Told to Spark, so that it does not take what has come for the whole."""


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


class FutureCancelled(HeadgateError):
    """The answer of a future was asked for after its ``cancel()``."""

    def __init__(self) -> None:
        super().__init__(
            "this future was cancelled, so it has no result; the job goes on: ask its client again"
        )
