"""Write the types of the page's scripts anew, from the API: python docs/generate_api_types.py"""

import textwrap
import types
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import structs

import headgate
from headgate.base.figures import (
    AsyncFigures,
    BatchFigures,
    GateFigures,
    OperatorFigures,
    OutputFigures,
)
from headgate.base.inspections import ChannelFigures, WaitingEntry
from headgate.base.job_records import CheckpointPart, CheckpointRecord, FailureRecord, LogLine
from headgate.base.messages import UserFigure
from headgate.observe.analysis.diagnosis import Diagnosis, LeftOutRecords, VertexAdvice
from headgate.observe.flame import FlameNode
from headgate.observe.web import answers

PATH = Path(headgate.__file__).parent / "observe/web/page/api_types.js"
NAMES: dict[Any, str] = {
    answers.Rates: "Rates",
    answers.Totals: "Totals",
    answers.OperatorDetails: "Operator",
    answers.VertexDetails: "Vertex",
    answers.EdgeDetails: "Edge",
    VertexAdvice: "Advice",
    LeftOutRecords: "LeftOut",
    Diagnosis: "Diagnosis",
    FailureRecord: "Failure",
    answers.JobDetails: "Job",
    GateFigures: "Gate",
    OutputFigures: "Output",
    OperatorFigures: "OperatorOfTask",
    AsyncFigures: "AsyncCalls",
    BatchFigures: "BatchCalls",
    UserFigure: "UserFigure",
    answers.SubtaskDetails: "Subtask",
    ChannelFigures: "Channel",
    WaitingEntry: "WaitingEntry",
    CheckpointRecord: "Checkpoint",
    CheckpointPart: "CheckpointPart",
    LogLine: "LogLine",
    answers.Features: "Features",
    answers.PageConfig: "Config",
}
"""What the scripts call them; other structs are written where they stand."""
NO_BREAK = "\u00a0"
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
HEAD = """\
// @ts-check
/**
 * What the REST API answers, for editors and `tsc --checkJs`; nothing here runs or is loaded.
 * Made by docs/generate_api_types.py.
"""
FOOT = """\
 *
 * @typedef {{name: string, value: number, children?: Frame[]}} Frame
 *
 * @typedef {{
 *   api: import("./api.js").Api, connection: import("./connection.js").Connection,
 *   config: Config, signal: AbortSignal,
 * }} Context what every view gets; `signal` tells it that it is gone
 */
export {};
"""


def page() -> str:
    """The whole file."""
    parts = [HEAD]
    for kind, name in NAMES.items():
        text = " ".join(f"{field},".replace(" ", NO_BREAK) for field in fields(kind))
        lines = textwrap.wrap(text, 95, break_long_words=False, break_on_hyphens=False)
        parts.append(" *\n * @typedef {{\n")
        parts += [f" *   {line}\n".replace(NO_BREAK, " ") for line in lines]
        parts.append(f" * }}}} {name}\n")
    return "".join([*parts, FOOT])


def fields(kind: Any) -> list[str]:
    """A struct's, as they are in JSON."""
    found = []
    for field in structs.fields(kind):
        key = field.name.replace("_", "-")
        quoted = f'"{key}"' if "-" in key else key
        found.append(f"{quoted}: {type_of(field.type)}")
    return found


def type_of(kind: Any) -> str:
    """As TypeScript has it."""
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in NAMES:
        return NAMES[kind]
    if kind is FlameNode:
        return "Frame"
    if kind is Any:
        return "any"
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_of(inner[0])
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(type_of, inner)))
    if origin is dict:
        return f"Record<string, {type_of(inner[1])}>"
    if origin is tuple and Ellipsis not in inner:
        return f"[{', '.join(map(type_of, inner))}]"
    if origin is not None:  # a list of any kind
        each = type_of(inner[0])
        return f"({each})[]" if " | " in each else f"{each}[]"
    if issubclass(kind, Enum):
        return "string"
    return f"{{{', '.join(fields(kind))}}}"


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
