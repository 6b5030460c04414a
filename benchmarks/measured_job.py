"""What the benchmarks of whole jobs share: an environment, readings of the clock, reports.

Sources note the first record of their process, sinks measure in the worker and report to the driver
at the end. The time runs from the first record of any source to the last one of any sink, so that
start-up is not in it. Input is picked beforehand and handed out in slices, so that the job is
measured and not the generator.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.settings.configuration import Configuration
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter
from headgate.host.driver.results import ResultWriter
from headgate.spark.collect import DriverStream

PICKED: Final = 1 << 17
"""How many records are picked beforehand; sources give them over and over."""

_began: list[tuple[int, float]] = []
"""When the source of this process gave its first record, and the CPU seconds of before."""


def bench_environment(
    parallelism: int, settings: Mapping[str, str] = MappingProxyType({})
) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism)


def note_first_record() -> None:
    """Called by sources with every list of records."""
    if not _began:
        _began.append((time.monotonic_ns(), time.process_time()))


def split_evenly(records: int, parallelism: int) -> list[int]:
    """How many records each task gives."""
    share, rest = divmod(records, parallelism)
    return [share + (task < rest) for task in range(parallelism)]


def first_place(task: int) -> int:
    """Where a task begins in what is picked: each at another place."""
    return task * 7919 % PICKED


def rate_figures(rates: Sequence[float], plain: float) -> dict[str, Any]:
    """Records a second of a job, and of a plain loop with the same functions."""
    return {
        "records_per_s": round(median(rates)),
        "plain_loop_records_per_s": round(plain),
        "ratio": round(median(rates) / plain, 2),
    }


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

    def results(self) -> list[dict[str, Any]]:
        """The reports, after the end of the job."""
        assert self.reports is not None, "reports stay in the driver"
        return self.reports

    def elapsed_s(self) -> float:
        """From the first record to the last."""
        began_ns = min(report["began_ns"] for report in self.results() if report["began_ns"])
        ended_ns = max(report["ended_ns"] for report in self.results())
        return float(ended_ns - began_ns) / 1e9


class ReportingWriter(SinkWriter):
    """Hands lists to ``meter.take``; ``meter.report()`` goes to the driver at the end."""

    def __init__(self, meter: Any, results: ResultWriter) -> None:
        self._meter = meter
        self._results = results
        self.write = meter.take  # type: ignore[method-assign] # a call less for each bundle

    def write(self, records: list[Any]) -> None:
        self._meter.take(records)

    def finish(self) -> None:
        cpu_s, ended_ns = time.process_time(), time.monotonic_ns()
        began_ns, cpu_before_s = _began.pop() if _began else (0, cpu_s)
        clock = {"began_ns": began_ns, "ended_ns": ended_ns, "cpu_s": cpu_s - cpu_before_s}
        self._results.write([{**clock, **self._meter.report()}])
        self._results.flush()

    def close(self) -> None:
        self._results.close()
