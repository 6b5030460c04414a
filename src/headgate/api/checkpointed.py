"""CheckpointedFunction: state of a function that belongs to its task; CheckpointListener."""

from abc import ABC, abstractmethod

from headgate.functions.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
)


class CheckpointedFunction(ABC):
    """To be inherited beside a function's own base class.

    ::

        class Buffering(CheckpointedFunction, MapFunction):
            def initialize_state(self, context):
                states = context.get_operator_state_store()
                self.kept = states.get_list_state(ListStateDescriptor("kept"))
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Before ``open``: ask for the states, which hold what an earlier run has left."""

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:  # noqa: B027
        """Before each snapshot: bring the states up to date."""


class CheckpointListener(ABC):
    """A function that is told what became of checkpoints; inherited beside its own base class.

    Not told of savepoints with which the job does not end. A call may be missed: then that for a
    later checkpoint says the same of all earlier ones.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is stored for good; no later failure goes back behind it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027
        """The checkpoint came to nothing."""
