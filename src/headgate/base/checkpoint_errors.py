"""Errors of checkpoints in their storage: what is wrong, where, and what to do about it.

HeadgateError
├── CheckpointError            a checkpoint or its storage …
│   ├── CheckpointCorrupt      … holds bytes that are not those that were written
│   ├── CheckpointMissing      … is not there, or one of its files is not
│   ├── CheckpointsDamaged     … is damaged, and so are all others of the job
│   └── StorageUnusable        … cannot be read or written: full, forbidden, unreachable, no folder
├── CheckpointAbandoned        a task's part that was given up while it was written
└── StateUnwritable            an operator has state that cannot be made bytes of
"""

from headgate.base.errors import HeadgateError


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


class StorageUnusable(CheckpointError):
    """The file system refuses, or does not answer."""


class CheckpointAbandoned(HeadgateError):
    """The checkpoint was given up while a task still wrote its part; nothing of it is left."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was given up; nothing more is written to it")
        self.path = path


class StateUnwritable(HeadgateError):
    """What an operator holds cannot be pickled, or changed while it was written."""

    def __init__(self, operator: str, problem: str) -> None:
        super().__init__(
            f"the state of operator {operator!r} cannot be written: {problem}; "
            f"keep only what can be pickled in state"
        )
        self.operator = operator
        self.problem = problem
