"""The outputs of a chain: to the next operator (with or without a copy) and to the network.

Chained outputs call the next operator directly, on the same thread, a bundle at a time. An error of
the user's function is wrapped once, by the output that leads to the failing operator.
"""

from collections.abc import Callable
from typing import Final, Protocol

from headgate.base.elements import (
    MIN_WATERMARK_MS,
    Bundle,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import ConnectorError, HeadgateError, UserFunctionFailed
from headgate.core.chain.copying import Copier
from headgate.core.chain.operator import Operator
from headgate.core.chain.output import Output
from headgate.core.egress.writer import RecordWriter


class Loan(Protocol):
    """The right to touch machines, given away while user code runs, and taken back."""

    def lend(self) -> None: ...

    def regain(self) -> None: ...


class ChainedOutput:
    """Leads to the next operator of the chain and hands on the same records (object reuse)."""

    def __init__(
        self, operator: Operator, name: str, number: int = 0, tag: str | None = None
    ) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.records_in = 0
        """What the operator behind it has received."""
        self._operator = operator
        self._name = name
        self._number = number
        self._tag = tag

    def collect(self, bundle: Bundle) -> None:
        if self._tag is None:
            self._hand_on(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        if tag == self._tag:
            self._hand_on(bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        with_name(self._name, lambda: self._operator.watermark_advanced(watermark))

    def emit_status(self, status: StreamStatus) -> None:
        with_name(self._name, lambda: self._operator.status_changed(status))

    def emit_marker(self, marker: LatencyMarker) -> None:
        with_name(self._name, lambda: self._operator.marker_received(marker))

    def _hand_on(self, bundle: Bundle) -> None:
        self.records_in += len(bundle.records)
        try:
            self._operator.process(bundle, self._number)
        except HeadgateError as error:
            tell_whose(error, self._name)
            raise
        except (Exception, SystemExit) as error:
            raise UserFunctionFailed(self._name, error) from error


class CopyingChainedOutput(ChainedOutput):
    """The same with object reuse off, the default: what can be changed is copied first."""

    def __init__(
        self, operator: Operator, name: str, number: int = 0, tag: str | None = None
    ) -> None:
        super().__init__(operator, name, number, tag)
        self._copier = Copier(name)

    def _hand_on(self, bundle: Bundle) -> None:
        copied = self._copier.copy(bundle.records)
        if copied is not bundle.records:
            bundle = Bundle(copied, bundle.timestamps)
        super()._hand_on(bundle)


STAGED: Final = 4096
"""So many records wait at most for the writer within a step."""


class NetworkOutput:
    """The last output of a chain: hands records that pass its tag to the record writer.

    While user code runs the writer must not be touched, so records wait in a list; ``seal`` at the
    end of a step writes them, and so does a list that has grown long.
    """

    def __init__(self, writer: RecordWriter, name: str, loan: Loan, tag: str | None = None) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self._writer = writer
        self._name = name
        self._loan = loan
        self._tag = tag
        self._records: list[Record] = []
        self._timestamps: list[int | None] | None = None

    def collect(self, bundle: Bundle) -> None:
        if self._tag is None:
            self._stage(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        if tag == self._tag:
            self._stage(bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        self._inside(lambda: self._writer.emit_element(watermark))

    def emit_status(self, status: StreamStatus) -> None:
        self._inside(lambda: self._writer.emit_element(status))

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._inside(lambda: self._writer.emit_element(marker))

    def seal(self) -> None:
        """Write what waits (called inside, at the end of a step)."""
        self._write_staged()
        self._write(self._writer.seal)

    def _stage(self, bundle: Bundle) -> None:
        if self._records:
            if (self._timestamps is None) != (bundle.timestamps is None):
                self._inside(lambda: None)
                self._stage(bundle)
                return
            self._records.extend(bundle.records)
            if self._timestamps is not None and bundle.timestamps is not None:
                self._timestamps.extend(bundle.timestamps)
        else:
            self._records = list(bundle.records)
            self._timestamps = None if bundle.timestamps is None else list(bundle.timestamps)
        if len(self._records) >= STAGED:
            self._inside(lambda: None)

    def _inside(self, action: Callable[[], None]) -> None:
        self._loan.regain()
        self._write_staged()
        self._write(action)
        self._loan.lend()

    def _write_staged(self) -> None:
        records, self._records = self._records, []
        if records:
            self._write(lambda: self._writer.emit_all(records, self._timestamps))

    def _write(self, action: Callable[[], None]) -> None:
        with_name(
            self._name, action, "when its records were routed by key or partitioner, or pickled"
        )


class CountingOutput:
    """Wraps any output and counts the records of the main output and of all side outputs."""

    def __init__(self, inner: Output) -> None:
        self.records_out = 0
        self._inner = inner

    @property
    def watermark_ms(self) -> int:
        return self._inner.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self._inner.watermark_ms = watermark_ms

    def collect(self, bundle: Bundle) -> None:
        self.records_out += len(bundle.records)
        self._inner.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self.records_out += len(bundle.records)
        self._inner.collect_side(tag, bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self._inner.emit_watermark(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        self._inner.emit_status(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._inner.emit_marker(marker)


def with_name(operator: str, action: Callable[[], None], doing: str = "") -> None:
    """Run an operator's code; an error that is not Headgate's own gets the operator's name."""
    try:
        action()
    except HeadgateError as error:
        tell_whose(error, operator)
        raise
    except (Exception, SystemExit) as error:
        raise UserFunctionFailed(operator, error, doing) from error


def tell_whose(error: HeadgateError, operator: str) -> None:
    """A connector's own error, which knows a path or a server, learns which operator it is of."""
    if isinstance(error, ConnectorError) and not error.operator:
        error.operator = operator
