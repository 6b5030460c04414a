"""Draws docs/scale.svg from what ``python -m benchmarks scale --json`` has printed.

``.venv/bin/python -m benchmarks scale --json | .venv/bin/python docs/make_scale_picture.py``; given
files, it draws their sections, later ones instead of earlier ones.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any, Final

PICTURE: Final = Path(__file__).with_name("scale.svg")
PANELS: Final = (
    ("parallelism", "parallelism", "cpu_ns_per_record", "CPU ns per record, by tasks"),
    ("parallelism", "parallelism", "private_mb", "private MB of a worker, by tasks"),
    ("keys", "keys", "cpu_ns_per_record", "CPU ns per record, by keys"),
    ("sizes", "record_bytes", "cpu_ns_per_record", "CPU ns per record, by bytes of a record"),
    ("exchanges", "exchanges", "cpu_ns_per_record", "CPU ns per record, by exchanges in a row"),
)
WIDTH, HEIGHT, MARGIN, PER_ROW = 360, 230, 44, 2
STYLE: Final = (
    "text{font:12px sans-serif;fill:#777}.title{font-size:13px;fill:#888;font-weight:bold}"
    "polyline{fill:none;stroke:#2a7fba;stroke-width:2}circle{fill:#2a7fba}"
    "line{stroke:#999;stroke-opacity:.4}"
)


def main() -> None:
    """Draw the panels whose figures there are."""
    texts = [Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]] or [sys.stdin.read()]
    found: dict[str, list[dict[str, Any]]] = {}
    for text in texts:
        found.update(json.loads(text.splitlines()[-1]))
    drawn = [panel for panel in PANELS if found.get(panel[0])]
    parts = [
        draw_panel(number, points_of(found[section], across, up), title)
        for number, (section, across, up, title) in enumerate(drawn)
    ]
    rows = math.ceil(len(drawn) / PER_ROW)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * PER_ROW} {HEIGHT * rows}">'
    )
    lines = [head, f"<style>{STYLE}</style>", *parts, "</svg>"]
    PICTURE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def points_of(rows: list[dict[str, Any]], across: str, up: str) -> list[tuple[float, float]]:
    """The points of a section that were measured."""
    return [(row[across], row[up]) for row in rows if up in row]


def draw_panel(number: int, points: list[tuple[float, float]], title: str) -> str:
    """Both axes are logarithmic; every point has its value beside it."""
    left, top = number % PER_ROW * WIDTH, number // PER_ROW * HEIGHT
    xs, ys = ([math.log10(point[axis]) for point in points] for axis in (0, 1))
    low, high = math.floor(min(ys) * 2) / 2, math.ceil(max(ys) * 2 + 0.2) / 2

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - min(xs)) / ((max(xs) - min(xs)) or 1)
        up = (y - low) / ((high - low) or 1)
        return (
            round(left + MARGIN + across * (WIDTH - 2 * MARGIN), 1),
            round(top + HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN), 1),
        )

    places = [place(x, y) for x, y in zip(xs, ys, strict=True)]
    base = top + HEIGHT - MARGIN
    lines = [
        f'<text class="title" x="{left + MARGIN}" y="{top + 22}">{title}</text>',
        f'<line x1="{left + MARGIN}" y1="{base}" x2="{left + WIDTH - MARGIN}" y2="{base}"/>',
        f'<polyline points="{" ".join(f"{x},{y}" for x, y in places)}"/>',
    ]
    for (x, y), (value, figure) in zip(places, points, strict=True):
        lines += [
            f'<circle cx="{x}" cy="{y}" r="3"/>',
            f'<text x="{x}" y="{y - 8}" text-anchor="middle">{short(figure)}</text>',
            f'<text x="{x}" y="{base + 16}" text-anchor="middle">{short(value)}</text>',
        ]
    return "\n".join(lines)


def short(value: float) -> str:
    """12,000 as 12k."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


if __name__ == "__main__":
    main()
