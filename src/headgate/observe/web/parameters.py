"""Parameters of a request: what each may be, and the sentence for what it may not.

They are declared once, for the check and for the OpenAPI document. Law: a value reaches a handler
only if its declaration allows it; a parameter that nobody has declared is refused, for it is
misspelt.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.errors import HeadgateError

LARGEST: Final = 2**53 - 1
"""A whole number that JSON and its readers keep exactly."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


class BadRequest(HeadgateError):
    """A request that cannot be answered as it is; the sentence says why."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query; its type is that of its default."""

    name: str
    default: str | int | float | bool | None
    """None: a whole number that may be left out."""
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that a text must match as a whole."""
    required: bool = False
    most: int = 1
    """May be given so often; more than once: the values come as a list."""

    def parse(self, text: str) -> str | int | float | bool:
        """Raises BadRequest."""
        default = self.default
        if isinstance(default, bool):
            return self._boolean(text)
        if default is None or isinstance(default, int):
            return int(self._within(self._whole(text), "whole number", LARGEST))
        if isinstance(default, float):
            return self._within(self._number(text), "number")
        if self.choices and text not in self.choices:
            raise BadRequest(f"{self.name} is {_short(text)}; give one of {_list(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise BadRequest(f"{self.name} is {_short(text)}; {self.meaning}")
        return text

    def schema(self) -> dict[str, Any]:
        """For the OpenAPI document."""
        default = self.default
        kind = "string"
        if isinstance(default, bool):
            kind = "boolean"
        elif default is None or isinstance(default, int):
            kind = "integer"
        elif isinstance(default, float):
            kind = "number"
        found: dict[str, Any] = {"type": kind}
        optional = {
            "default": None if self.required else default,
            "minimum": self.low,
            "maximum": LARGEST if kind == "integer" and self.high is None else self.high,
            "enum": list(self.choices) or None,
            "pattern": f"^(?:{self.pattern})$" if self.pattern else None,
        }
        found.update({key: value for key, value in optional.items() if value is not None})
        if self.most == 1:
            return found
        return {"type": "array", "items": found, "minItems": 1, "maxItems": self.most}

    def _boolean(self, text: str) -> bool:
        if text in ("true", "false"):
            return text == "true"
        raise BadRequest(f"{self.name} is {_short(text)}; give true or false")

    def _whole(self, text: str) -> float:
        return int(text) if _WHOLE.fullmatch(text) else math.nan

    def _number(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return math.nan

    def _within(self, value: float, kind: str, largest: float = math.inf) -> float:
        low = -math.inf if self.low is None else self.low
        high = largest if self.high is None else self.high
        if not low <= value <= high or math.isinf(value):
            raise BadRequest(f"{self.name} must be a {kind}{self._bounds()}")
        return value

    def _bounds(self) -> str:
        if self.low is None and self.high is None:
            return ""
        if self.high is None:
            return f" of at least {self.low:g}"
        return f" from {self.low or 0:g} to {self.high:g}"


def parse_query(
    declared: Sequence[Parameter], given: Sequence[tuple[str, str]]
) -> Mapping[str, Any]:
    """Values by name, those that were left out too; raises BadRequest."""
    known = {parameter.name: parameter for parameter in declared}
    values: dict[str, Any] = {parameter.name: parameter.default for parameter in declared}
    seen: set[str] = set()
    for name, text in given:
        if name not in known:
            may = f"it has {_list(tuple(known))}" if known else "it has none"
            raise BadRequest(f"this path has no parameter {_short(name)}; {may}")
        parameter = known[name]
        value = parameter.parse(text)
        if parameter.most > 1:
            values[name] = [*values[name], value] if name in seen else [value]
            if len(values[name]) > parameter.most:
                raise BadRequest(f"{name} is given more than {parameter.most:,} times")
        elif name in seen:
            raise BadRequest(f"{name} is given twice")
        else:
            values[name] = value
        seen.add(name)
    missing = [each.name for each in declared if each.required and each.name not in seen]
    if missing:
        raise BadRequest(f"this path needs {_list(tuple(missing))}")
    return values


def whole_number(text: str) -> int | None:
    """Of a path; None: it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _list(words: tuple[str, ...]) -> str:
    return ", ".join(words)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
