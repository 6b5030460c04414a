"""``bench isolation --live``: the claim of the design as a live picture in the terminal.

Two channels share one connection; one consumer stops. First with credits, then with TCP flow
control. Without a terminal it prints plain lines instead of the picture.
"""

import time
from collections import deque
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headgate.base.settings import FlowControl
from headgate.cli.bench.isolation import IsolationSample, run_isolation_bench

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
_MODE_NAMES = {
    FlowControl.CREDIT: "credit-based flow control",
    FlowControl.TCP: "TCP-based flow control",
}


def show_isolation(seconds: float) -> dict[str, Any]:
    """Show both modes, then say what was seen."""
    console = Console()
    console.print(
        "Two channels share one TCP connection between two processes. "
        "Then the consumer of one of them stops.\n"
    )
    if console.is_terminal:
        with Live(console=console, refresh_per_second=12) as live:
            picture = Picture()

            def show(reading: IsolationSample) -> None:
                live.update(picture.update(reading))

            result = run_isolation_bench(seconds, 1, show)
    else:
        result = run_isolation_bench(seconds, 1, PlainLines(console).update)
    console.print(summary(result))
    return result


def summary(result: dict[str, Any]) -> RenderableType:
    """The closing table."""
    table = Table(title="The healthy channel while its neighbour is stopped", title_justify="left")
    for column in ("flow control", "alone", "beside the stopped one", "share", "producer blocked"):
        table.add_column(column, justify="left" if column == "flow control" else "right")
    for mode in ("credit", "tcp"):
        table.add_row(
            mode,
            f"{result[f'{mode}_alone_mb_per_s']:,.0f} MB/s",
            f"{result[f'{mode}_beside_mb_per_s']:,.0f} MB/s",
            f"{result[f'{mode}_share']:.0%}",
            f"after {result[f'{mode}_block_ms']:.0f} ms",
        )
    return table


class RateBars:
    """Megabytes a second of one channel, as a line of bars."""

    def __init__(self, name: str, style: str) -> None:
        self.name = name
        self._style = style
        self._rates: deque[float] = deque(maxlen=_WIDTH)
        self._last: tuple[float, int] | None = None

    def update(self, total_bytes: int, now: float) -> None:
        if self._last is not None and total_bytes >= self._last[1]:
            seconds = max(1e-6, now - self._last[0])
            self._rates.append((total_bytes - self._last[1]) / 1e6 / seconds)
        self._last = (now, total_bytes)

    def line(self, top: float) -> Text:
        steps = len(_BARS) - 1
        bars = "".join(_BARS[min(steps, round(rate / top * steps))] for rate in self._rates)
        current = self._rates[-1] if self._rates else 0.0
        return Text.assemble(
            f"{self.name:<16}", (f"{bars:<{_WIDTH}}", self._style), f"{current:>8,.0f} MB/s"
        )

    @property
    def peak(self) -> float:
        return max(self._rates, default=0.0)


class Picture:
    """One panel for each mode; the last one moves."""

    def __init__(self) -> None:
        self._panels: dict[FlowControl, tuple[RateBars, RateBars]] = {}
        self._phases: dict[FlowControl, str] = {}

    def update(self, reading: IsolationSample) -> RenderableType:
        """Take a reading, give the picture."""
        meters = self._panels.setdefault(
            reading.mode,
            (RateBars("healthy channel", "green"), RateBars("its neighbour", "yellow")),
        )
        now = time.perf_counter()
        meters[0].update(reading.healthy_bytes, now)
        meters[1].update(reading.stopped_bytes, now)
        self._phases[reading.mode] = reading.phase
        return Group(*(self._panel(mode) for mode in self._panels))

    def _panel(self, mode: FlowControl) -> Panel:
        healthy, stopped = self._panels[mode]
        top = max(healthy.peak, stopped.peak, 1.0)
        return Panel(
            Group(healthy.line(top), stopped.line(top)),
            title=f"{_MODE_NAMES[mode]}: {self._phases[mode]}",
            title_align="left",
            width=_WIDTH + 34,
        )


class PlainLines:
    """A line for each phase, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: tuple[FlowControl, str] | None = None

    def update(self, reading: IsolationSample) -> None:
        now = (reading.mode, reading.phase)
        if now != self._seen:
            self._seen = now
            self._console.print(f"{_MODE_NAMES[reading.mode]}: {reading.phase}")
