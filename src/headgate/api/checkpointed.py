"""CheckpointedFunction: state of a function that belongs to its task, not to a key."""

from abc import ABC, abstractmethod

from headgate.core.chain.checkpointed import (
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
