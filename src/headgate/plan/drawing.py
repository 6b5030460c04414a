"""A drawing of a job graph as SVG: vertices with their operators, edges with how they ship.

Cards have a colour of their own behind every letter and lines are of a middling grey, so that it
can be read on light and on dark ground. Law: no font, style or link from outside, and the same
graph gives the same text.
"""

import re
from html import escape
from itertools import pairwise
from typing import Final

from headgate.core.chain.spec import ChainSpec, ToOperator
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.plan.layout import Box, Point, layered
from headgate.plan.stream_graph import DEFAULT_GROUP

MARGIN: Final = 20.0
COLUMN_GAP: Final = 64.0
HEAD_HEIGHT: Final = 26.0
LINE_HEIGHT: Final = 20.0
PADDING: Final = 12.0
INDENT: Final = 14.0
PORT_GAP: Final = 24.0
NAME_LETTERS: Final = 40

SOURCE_COLOUR: Final = "#0f766e"
INNER_COLOUR: Final = "#1d4ed8"
END_COLOUR: Final = "#7c3aed"
INK: Final = "#1e293b"
CARD: Final = "#ffffff"
LABEL: Final = "#e2e8f0"
LINE: Final = "#7c8899"

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Letters that no XML may hold, not even escaped."""


def draw_svg(job_graph: JobGraph) -> str:
    """The whole drawing, ready to be a file or a part of a page."""
    edges = job_graph.edges
    labels = [_label(edge) for edge in edges]
    layout = layered(
        [_size(job_graph, vertex) for vertex in job_graph.vertices],
        [(edge.source, edge.target) for edge in edges],
        {number: _label_width(label) for number, label in enumerate(labels)},
        COLUMN_GAP,
    )
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{_text(job_graph.name)}</title>",
    ]
    for edge, label, route in zip(edges, labels, layout.routes, strict=True):
        lines += _draw_edge(edge, label, route)
    for vertex, box in zip(job_graph.vertices, layout.boxes, strict=True):
        lines += _draw_vertex(job_graph, vertex, box)
    return "\n".join([*lines, "</svg>", ""])


def _size(graph: JobGraph, vertex: JobVertex) -> tuple[float, float]:
    """Wide enough for its words, high enough for its operators and for the ends of its edges."""
    widths = [_width(_head(vertex)) + _width(_tasks(vertex)) + 24]
    widths += [
        _width(_short(operator.name)) + INDENT * (depth + 1)
        for operator, depth in zip(vertex.chain.operators, _depths(vertex.chain), strict=True)
    ]
    words = HEAD_HEIGHT + PADDING + LINE_HEIGHT * len(vertex.chain.operators)
    ends = max(len(graph.inputs_of(vertex.id)), len(graph.outputs_of(vertex.id)))
    return max(widths) + 2 * PADDING, max(words, PORT_GAP * (ends + 1))


def _draw_vertex(graph: JobGraph, vertex: JobVertex, box: Box) -> list[str]:
    if vertex.is_source:
        colour = SOURCE_COLOUR
    else:
        colour = INNER_COLOUR if graph.outputs_of(vertex.id) else END_COLOUR
    w, h = box.width, box.height
    lines = [
        f'<g transform="translate({box.x:.1f} {box.y:.1f})">',
        f"<title>{_text(vertex.name)}</title>",
        f'<rect width="{w:.1f}" height="{h:.1f}" rx="8" fill="{CARD}" stroke="{colour}" '
        f'stroke-width="1.5"/>',
        f'<path d="M0 {HEAD_HEIGHT} V8 a8 8 0 0 1 8 -8 H{w - 8:.1f} a8 8 0 0 1 8 8 '
        f'V{HEAD_HEIGHT} Z" fill="{colour}"/>',
        '<g fill="#ffffff" font-size="12">',
        f'<text x="{PADDING}" y="17.5">{_text(_head(vertex))}</text>',
        f'<text x="{w - PADDING:.1f}" y="17.5" text-anchor="end" font-weight="600">'
        f"{_tasks(vertex)}</text>",
        "</g>",
        f'<g fill="{INK}">',
    ]
    y = HEAD_HEIGHT + PADDING / 2 + LINE_HEIGHT / 2
    for operator, depth in zip(vertex.chain.operators, _depths(vertex.chain), strict=True):
        x = PADDING + INDENT * depth
        lines += [
            f'<circle cx="{x + 3:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>',
            f'<text x="{x + INDENT:.1f}" y="{y + 4.5:.1f}"><title>{_text(operator.name)}</title>'
            f"{_text(_short(operator.name))}</text>",
        ]
        y += LINE_HEIGHT
    return [*lines, "</g>", "</g>"]


def _draw_edge(edge: JobEdge, label: str, route: list[Point]) -> list[str]:
    """Curves from column to column, then a straight end with the label on it."""
    end_x, end_y = route[-1]
    width = _label_width(label)
    points = [*route[:-1], (end_x - width, end_y)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for place, ((from_x, from_y), (x, y)) in enumerate(pairwise(points)):
        if place % 2:
            path += f" L{x:.1f} {y:.1f}"  # along a lane
        else:
            half = (from_x + x) / 2
            path += f" C{half:.1f} {from_y:.1f} {half:.1f} {y:.1f} {x:.1f} {y:.1f}"
    dashes = "" if edge.kind.is_pipelined else ' stroke-dasharray="6 4"'
    label_x = end_x - width + 4
    return [
        f'<path d="{path} H{end_x - 6:.1f}" fill="none" stroke="{LINE}" stroke-width="1.8"'
        f"{dashes}/>",
        f'<path d="M{end_x - 9:.1f} {end_y - 5:.1f} L{end_x:.1f} {end_y:.1f} '
        f'L{end_x - 9:.1f} {end_y + 5:.1f} Z" fill="{LINE}"/>',
        f'<rect x="{label_x:.1f}" y="{end_y - 9:.1f}" width="{width - 18:.1f}" height="18" rx="9" '
        f'fill="{LABEL}"/>',
        f'<text x="{label_x + (width - 18) / 2:.1f}" y="{end_y + 4:.1f}" text-anchor="middle" '
        f'font-size="11" fill="{INK}">{_text(label)}</text>',
    ]


def _label(edge: JobEdge) -> str:
    parts = [edge.ship]
    if edge.input:
        parts.append(f"input {edge.input + 1}")
    if edge.tag is not None:
        parts.append(_short(edge.tag))
    if edge.selected is not None:
        parts.append(_short(", ".join(sorted(edge.selected))))
    return " · ".join(parts)


def _label_width(label: str) -> float:
    """From the end of the curve to the target: the label with its rims, and the arrow."""
    return _width(label) * 11 / 13 + 16 + 18


def _head(vertex: JobVertex) -> str:
    group = "" if vertex.group == DEFAULT_GROUP else f" · {_short(vertex.group)}"
    return f"vertex {vertex.id}{group}"


def _tasks(vertex: JobVertex) -> str:
    return f"×{vertex.parallelism}"  # noqa: RUF001 - the sign is meant


def _depths(chain: ChainSpec) -> list[int]:
    """How far to indent each operator: one step behind every fork of the chain."""
    depths = [0] * len(chain.operators)
    for place, operator in enumerate(chain.operators):
        followers = [to.operator for to in operator.outputs if isinstance(to, ToOperator)]
        for follower in followers:
            depths[follower] = depths[place] + (len(followers) > 1)
    return depths


def _short(name: str) -> str:
    return name if len(name) <= NAME_LETTERS else name[: NAME_LETTERS - 1] + "…"


def _width(text: str) -> float:
    """About how wide a text of 13 pixels becomes; rather more, since the font is the reader's."""
    return sum(13.5 if c in "MW@%…→" or c > "\u2e7f" else 9.4 if c.isupper() else 7.4 for c in text)


def _text(text: str) -> str:
    return escape(_ILLEGAL.sub("\ufffd", text))
