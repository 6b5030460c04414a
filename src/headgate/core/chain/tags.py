"""Output tags: the name of a side output, and the sorting of what a process function yields."""

from collections.abc import Iterable

from headgate.base.elements import Bundle, Record
from headgate.core.chain.output import Output
from headgate.core.chain.owning import own


class OutputTag:
    """Names a side output. Tags with the same id are the same tag, wherever they were made."""

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: object = None) -> None:
        if not tag_id:
            raise ValueError("an output tag needs a text that is not empty as its id")
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return self.tag_id.__hash__()

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


class Sorter:
    """Collects what process functions yield and sends it on: plain values, or (tag, value)."""

    __slots__ = ("_output", "_own", "_records", "_size", "_times")

    def __init__(self, output: Output, copies: bool = True, piece: int = 4096) -> None:
        self._own = own if copies else _as_it_is
        self._output = output
        self._size = piece
        self._records: list[Record] = []
        self._times: list[int | None] | None = None

    def take(self, found: Iterable[Record] | None, timestamp: int | None) -> None:
        """What one call returned; None means nothing."""
        if found is None:
            return
        own = self._own
        for value in found:
            if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
                self._side(value[0].tag_id, own(value[1]), timestamp)
            else:
                self._main(own(value), timestamp)

    def flush(self) -> None:
        """Send on what was collected."""
        records, times = self._records, self._times
        if records:
            self._records, self._times = [], None
            self._output.collect(Bundle(records, times))

    def _main(self, value: Record, timestamp: int | None) -> None:
        if timestamp is None:
            if self._times is not None:
                self.flush()
        elif self._times is None:
            self.flush()
            self._times = [timestamp]
        else:
            self._times.append(timestamp)
        self._records.append(value)
        if len(self._records) >= self._size:
            self.flush()

    def _side(self, tag: str, value: Record, timestamp: int | None) -> None:
        self._output.collect_side(tag, Bundle([value], None if timestamp is None else [timestamp]))


def _as_it_is(value: Record) -> Record:
    return value
