"""Errors of a job that is to go on from a checkpoint, and cannot.

HeadgateError
└── RestoreRefused            a checkpoint does not fit the program …
    ├── ProgramDiffers        … none of its operators is there
    ├── StateUnclaimed        … an operator with state is gone
    ├── PlacesMoved           … an operator without a uid stands where another one stood
    ├── KeyGroupsDiffer       … an operator has another maximum parallelism
    ├── ChannelsDiffer        … records in flight have no way to their readers
    ├── FinishedAlready       … an operator had finished, and is to get input again
    ├── StateChanged          … a state has another kind or type
    └── CheckpointUnsound     … its metadata contradicts itself
"""

from headgate.base.errors import HeadgateError


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
