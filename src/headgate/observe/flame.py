"""Where the time of a task goes: a tree of sampled frames as a flame graph, a table, folded lines.

Frames are texts, ``function (file.py:line)``. The tree grows downwards from its root, the task.
Law: the same tree gives the same text; the drawing loads nothing from outside, runs no script, and
is valid XML whatever the frames are called; its size is bounded, since frames that would be
narrower than half a pixel are left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from zlib import crc32

import msgspec

from headgate.base.inspections import SampledStack, StackSamples
from headgate.plan.table import cut, xml_text

DROPPED: Final = "stacks that were too many to be kept"
WIDTH: Final = 1200.0
ROW: Final = 18.0
MARGIN: Final = 12.0
HEAD: Final = 64.0
LETTER: Final = 6.7
"""The width of a letter, rather too wide: the font is the reader's."""
NARROWEST: Final = 0.5
_OURS: Final = "headgate/"
_MACHINERY: Final = ("threading.py", "selectors.py", "contextlib.py")
"""Files of Python that Headgate's own code calls; a user's function begins elsewhere."""
_PLACE: Final = re.compile(r"\(([^()]*?)(?::\d+)?\)$")
_STYLE: Final = (
    ".ground{fill:#ffffff}.ink{fill:#1e293b}.soft{fill:#64748b}"
    "@media (prefers-color-scheme:dark)"
    "{.ground{fill:#0f172a}.ink{fill:#e2e8f0}.soft{fill:#94a3b8}}"
    "g.f:hover rect{stroke:#1e293b;stroke-width:1.5}"
)


class FlameNode(msgspec.Struct, frozen=True):
    """A frame, and what was seen of it together with all that it called."""

    name: str
    value: float = 0.0
    children: list["FlameNode"] = []


class FrameOwner(Enum):
    """Whose code a frame is; the value is the name of its colour in the legend."""

    USER = "your code"
    LIBRARY = "called by your code"
    HEADGATE = "Headgate and Python"


_HUES: Final = {FrameOwner.USER: 16, FrameOwner.LIBRARY: 46, FrameOwner.HEADGATE: 208}
_SPREAD: Final = {FrameOwner.USER: 16, FrameOwner.LIBRARY: 10, FrameOwner.HEADGATE: 18}


@dataclass(frozen=True, slots=True)
class FrameShare:
    """One frame, over all stacks that it is in."""

    name: str
    owner: FrameOwner
    own: float
    """Share of the samples in which it was the innermost frame."""
    total: float
    """Share of the samples in which it was anywhere in the stack."""

    @property
    def weight(self) -> float:
        """What counts of it: a user's line has to answer for what it calls, others do not."""
        return self.total if self.owner is FrameOwner.USER else self.own


def hottest_frames(root: FlameNode) -> list[FrameShare]:
    """Every frame below the root: first the user's, by total; then others, by their own share."""
    own: dict[str, float] = {}
    total: dict[str, float] = {}
    owners: dict[str, FrameOwner] = {}
    for path, node in _walk(root):
        frames = path[1:]
        if not frames:
            continue
        spent = max(0.0, node.value - sum(child.value for child in node.children))
        own[frames[-1]] = own.get(frames[-1], 0.0) + spent
        for name in dict.fromkeys(frames):  # once, however often it calls itself
            total[name] = total.get(name, 0.0) + spent
        owners.setdefault(frames[-1], owner_of(frames))
    whole = root.value or 1.0
    order = list(FrameOwner)
    return sorted(
        (FrameShare(name, owners[name], own[name] / whole, total[name] / whole) for name in own),
        key=lambda frame: (order.index(frame.owner), -frame.weight, -frame.total, frame.name),
    )


def folded(root: FlameNode) -> str:
    """A line for each stack, ``outer;inner count``, as flamegraph.pl and speedscope read it."""
    lines = []
    for path, node in _walk(root):
        spent = round(node.value - sum(child.value for child in node.children))
        if spent > 0 and len(path) > 1:
            lines.append(";".join(map(_fold, path[1:])) + f" {spent}\n")
    return "".join(lines)


def draw_flame(root: FlameNode, title: str, subtitle: str = "") -> str:
    """A picture of its own, ready to be a file; hovering over a frame shows its name and share."""
    boxes: list[str] = []
    depth = _draw_below(root, MARGIN, WIDTH - 2 * MARGIN, root.value or 1.0, boxes)
    height = HEAD + (depth + 1) * ROW + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {WIDTH:.0f} {height:.0f}" '
        f'font-family="ui-monospace, monospace" font-size="11">',
        f"<title>{xml_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{WIDTH:.0f}" height="{height:.0f}"/>',
        f'<text class="ink" x="{MARGIN:.0f}" y="24" font-size="15" font-weight="600">'
        f"{xml_text(cut(title, 90))}</text>",
        f'<text class="soft" x="{MARGIN:.0f}" y="44">{xml_text(subtitle)}</text>',
        *_legend(),
        *boxes,
    ]
    if not root.children:
        lines.append(
            f'<text class="ink" x="{MARGIN:.0f}" y="{HEAD + 1.7 * ROW:.0f}">no samples</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def owner_of(frames: Sequence[str]) -> FrameOwner:
    """Whose code the last of these frames is; they are given outermost first.

    The user's code begins with the first frame that Headgate calls outside of itself. What lies in
    the same file is the user's, too; the rest was called by it.
    """
    inside, first = False, ""
    for name in frames:
        place = _place(name)
        if place.startswith(_OURS):
            inside = True
        elif inside and place not in _MACHINERY and not place.startswith("<frozen"):
            first = place
            break
    if not first:
        return FrameOwner.HEADGATE
    return FrameOwner.USER if _place(frames[-1]) == first else FrameOwner.LIBRARY


def _walk(root: FlameNode) -> Iterator[tuple[list[str], FlameNode]]:
    """Every node with the names from the root to it; without recursion: stacks may be deep."""
    waiting = [([root.name], root)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        waiting += [([*path, child.name], child) for child in reversed(node.children)]


def _draw_below(root: FlameNode, left: float, width: float, whole: float, boxes: list[str]) -> int:
    """The root and all below it; answers how many rows there are below the first."""
    deepest = 0
    waiting: list[tuple[list[str], FlameNode, float, float, int]] = [([], root, left, width, 0)]
    while waiting:
        above, node, x, wide, depth = waiting.pop()
        frames = [*above, node.name] if depth else []
        boxes += _draw_frame(node, frames, x, wide, depth, whole)
        deepest = max(deepest, depth)
        below, right = [], x + wide
        for child in node.children:
            child_wide = wide * child.value / node.value if node.value > 0 else 0.0
            child_wide = min(child_wide, right - x)  # children never stick out
            if child_wide >= NARROWEST:
                below.append((frames, child, x, child_wide, depth + 1))
            x += child_wide
        waiting += reversed(below)
    return deepest


def _draw_frame(
    node: FlameNode, frames: Sequence[str], x: float, wide: float, depth: int, whole: float
) -> list[str]:
    y = HEAD + depth * ROW
    owner = owner_of(frames) if frames else None
    room = int((wide - 6) / LETTER)
    label = (
        f'<text x="{x + 3:.2f}" y="{y + 12.5:.1f}" fill="#1e293b">'
        f"{xml_text(cut(node.name, room))}</text>"
    )
    share = f"{node.value / whole:.1%}"
    return [
        f'<g class="f"><title>{xml_text(node.name)}: {share}'
        f"{'' if owner is None else f' ({owner.value})'}</title>",
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(wide - 0.5, 0.3):.2f}" height="{ROW - 1:.0f}" '
        f'rx="2" fill="{_colour(node.name, owner)}"/>',
        *([label] if room >= 3 else []),
        "</g>",
    ]


def _legend() -> list[str]:
    lines, x = [], WIDTH - MARGIN
    for owner in reversed(FrameOwner):
        x -= len(owner.value) * LETTER + 26
        lines += [
            f'<rect x="{x:.0f}" y="14" width="12" height="12" rx="2" '
            f'fill="hsl({_HUES[owner]} 80% 70%)"/>',
            f'<text class="ink" x="{x + 17:.0f}" y="24">{owner.value}</text>',
        ]
    return lines


def _colour(name: str, owner: FrameOwner | None) -> str:
    """A frame has one colour in every drawing; it is light enough for dark letters."""
    if owner is None:
        return "#cbd5e1"
    chance = crc32(name.encode("utf-8", "replace"))
    hue = _HUES[owner] + chance % (2 * _SPREAD[owner]) - _SPREAD[owner]
    return f"hsl({hue} {70 + chance // 64 % 16}% {66 + chance // 4096 % 12}%)"


def _place(name: str) -> str:
    """The file of a frame."""
    found = _PLACE.search(name)
    return found[1] if found else ""


def _fold(name: str) -> str:
    return "".join(letter if letter.isprintable() and letter != ";" else "," for letter in name)


@dataclass(slots=True)
class _Frame:
    value: float = 0.0
    children: "dict[str, _Frame]" = field(default_factory=dict)


def flame_tree(root: str, samples: Sequence[StackSamples], kind: str) -> FlameNode:
    """The tree of these samples; ``kind``: ``full``, ``on_cpu`` or ``off_cpu``.

    Values are samples: every one, or the parts of them that the thread was on a CPU, or was not.
    """
    tree = _Frame()
    for found in samples:
        each_ms = found.wall_ms / found.samples if found.samples else 0.0
        for stack in found.stacks:
            _add(tree, stack.frames, _weight(stack, each_ms, kind))
        if found.dropped and kind == "full":
            _add(tree, (DROPPED,), float(found.dropped))
    return _node(root, tree)


def _weight(stack: SampledStack, each_ms: float, kind: str) -> float:
    """How many samples the stack stands for."""
    if kind == "full":
        return float(stack.count)
    on_cpu = min(float(stack.count), stack.cpu_ms / each_ms) if each_ms > 0 else 0.0
    return on_cpu if kind == "on_cpu" else stack.count - on_cpu


def _add(tree: _Frame, frames: Sequence[str], weight: float) -> None:
    if weight <= 0:
        return
    tree.value += weight
    for frame in frames:
        tree = tree.children.setdefault(frame, _Frame())
        tree.value += weight


def _node(name: str, frame: _Frame) -> FlameNode:
    children = sorted(frame.children.items(), key=lambda child: (-child[1].value, child[0]))
    return FlameNode(name, frame.value, [_node(name, child) for name, child in children])
