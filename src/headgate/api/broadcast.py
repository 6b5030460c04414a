"""BroadcastStream: a stream that goes to every task and is remembered there as broadcast state."""

from typing import TYPE_CHECKING

from headgate.base.errors import PlanInvalid
from headgate.functions.state import MapStateDescriptor

if TYPE_CHECKING:
    from headgate.api.datastream import DataStream


class BroadcastStream:
    """Made by ``broadcast(descriptor)``; give it to ``connect`` of another stream.

    ::

        rules = rule_stream.broadcast(MapStateDescriptor("rules", Types.STRING(), Types.INT()))
        payments.connect(rules).process(CheckRules())
    """

    def __init__(
        self, input_stream: "DataStream", descriptors: tuple[MapStateDescriptor, ...]
    ) -> None:
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise PlanInvalid(
                    f"broadcast() was given {descriptor!r}; give a MapStateDescriptor for each "
                    f"broadcast state, or nothing to send every record to every task"
                )
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(descriptors)
