"""Sinks of the benchmarks: they measure in the worker and tell the driver at the end."""

from collections.abc import Callable
from typing import Any

from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter
from headgate.host.driver.results import ResultWriter
from headgate.spark.driver_sinks import DriverStream


class ReportingSink(Sink):
    """Each task makes a meter, gives it all records, and sends its report to the driver."""

    def __init__(self, make_meter: Callable[[], Any]) -> None:
        self.reports: list[Any] | None = []
        self.driver_stream = DriverStream(self.reports.extend)
        self._make_meter = make_meter

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "reports": None}

    def create_writer(self, context: ConnectorContext) -> SinkWriter:
        return ReportingWriter(self._make_meter(), self.driver_stream.connect())


class ReportingWriter(SinkWriter):
    """Hands lists to ``meter.take``; ``meter.report()`` goes to the driver at the end."""

    def __init__(self, meter: Any, line: ResultWriter) -> None:
        self._meter = meter
        self._line = line
        self.write = meter.take  # type: ignore[method-assign] # a call less for each bundle

    def write(self, records: list[Any]) -> None:
        self._meter.take(records)

    def finish(self) -> None:
        self._line.write([self._meter.report()])
        self._line.flush()

    def close(self) -> None:
        self._line.close()
