"""Draws what a soak has seen: a panel for each figure over time, and a line for each fault."""

from collections.abc import Sequence
from typing import Protocol

from tests.soak.samples import Sample

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 380, 150, 52, 14, 30, 26
PER_ROW = 2
PANELS = (
    ("records/s", "committed records per second"),
    ("worker python MB", "Python workers, MB (PSS)"),
    ("driver python MB", "driver, Python, MB (PSS)"),
    ("driver jvm MB", "driver, JVM, MB (PSS)"),
    ("executor jvm MB", "executors, JVM, MB (PSS)"),
    ("descriptors", "open descriptors, all processes"),
    ("threads", "threads, all processes"),
    ("checkpoint files", "files in the checkpoint folder"),
    ("checkpoint MB", "MB in the checkpoint folder"),
    ("temporary files", "files in temporary folders"),
)
COLORS = {
    "function": "#9a9a9a",
    "worker": "#2a9d5c",
    "executor": "#c98a1b",
    "machine": "#b5482e",
    "driver": "#7a3fb5",
}
STYLE = (
    "text{font:11px sans-serif;fill:#777}.title{font-size:12px;fill:#888;font-weight:bold}"
    "polyline{fill:none;stroke:#2a7fba;stroke-width:1.5}line{stroke:#999;stroke-opacity:.4}"
    ".fault{stroke-opacity:.55}"
)


class Moment(Protocol):
    """A fault: when, and of which kind."""

    @property
    def at_s(self) -> float: ...

    @property
    def kind(self) -> str: ...


def draw(samples: Sequence[Sample], hits: Sequence[Moment]) -> str:
    """The whole picture, as SVG."""
    rows = -(-len(PANELS) // PER_ROW)
    size = f"0 0 {WIDTH * PER_ROW} {HEIGHT * rows + 24}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}">',
        f"<style>{STYLE}</style>",
    ]
    for number, (name, title) in enumerate(PANELS):
        parts.append(_panel(number, name, title, samples, hits))
    parts += [_legend(HEIGHT * rows + 14), "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(
    number: int, name: str, title: str, samples: Sequence[Sample], hits: Sequence[Moment]
) -> str:
    left, top = number % PER_ROW * WIDTH + LEFT, number // PER_ROW * HEIGHT + TOP
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    last = samples[-1].at_s or 1.0
    high = max(sample.figures[name] for sample in samples) * 1.1 or 1.0
    points = " ".join(
        f"{left + sample.at_s / last * width:.1f},"
        f"{top + height - sample.figures[name] / high * height:.1f}"
        for sample in samples
    )
    lines = [f'<text class="title" x="{left}" y="{top - 10}">{title}</text>']
    for hit in hits:
        x = f"{left + hit.at_s / last * width:.1f}"
        lines.append(
            f'<line class="fault" style="stroke:{COLORS[hit.kind]}" x1="{x}" y1="{top}" '
            f'x2="{x}" y2="{top + height}"/>'
        )
    base = top + height
    lines += [
        f'<line x1="{left}" y1="{base}" x2="{left + width}" y2="{base}"/>',
        f'<polyline points="{points}"/>',
        f'<text x="{left - 6}" y="{top + 8}" text-anchor="end">{high:,.0f}</text>',
        f'<text x="{left - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{left + width}" y="{base + 15}" text-anchor="end">{last / 60:.1f} min</text>',
    ]
    return "\n".join(lines)


def _legend(y: int) -> str:
    parts, x = [], LEFT
    for kind, color in COLORS.items():
        parts.append(f'<text x="{x}" y="{y}" style="fill:{color}">| {kind}</text>')
        x += 90
    return "\n".join(parts)
