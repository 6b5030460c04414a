"""A sink that forgets: to measure what stands before it, or to run a branch for its effects."""

from dataclasses import dataclass

from headgate.base.elements import Record
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter


@dataclass(frozen=True)
class DiscardSink(Sink):
    """Takes everything and keeps nothing."""

    default_name = "discard"

    def create_writer(self, context: ConnectorContext) -> "DiscardWriter":
        return DiscardWriter()


class DiscardWriter(SinkWriter):
    """Forgets the records of one task."""

    def write(self, records: list[Record]) -> None:
        pass
