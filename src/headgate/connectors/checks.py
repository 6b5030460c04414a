"""What a setting of a connector may be: a table of names and checks, which its constructor applies.

::

    CHECKS = {"stream": TEXT, "guarantee": GUARANTEE, "max_len": optional(COUNT)}

Law: a wrong setting is refused when the program is written, by name, with its value and with what
would be right.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.base.errors import PlanInvalid
from headgate.functions.sink import DeliveryGuarantee


class Check(NamedTuple):
    """What a setting may be."""

    wanted: str
    """What to give, as the end of a sentence."""
    is_right: Callable[[Any], bool]


def check_settings(settings: object, checks: Mapping[str, Check], user: str = "") -> None:
    """Raises PlanInvalid for the first attribute that is not right; ``user``: whose they are."""
    for name, check in checks.items():
        value = getattr(settings, name)
        if not check.is_right(value):
            raise PlanInvalid(
                f"{user or type(settings).__name__}: {name} is {value!r}; give {check.wanted}"
            )


def one_of(*values: object) -> Check:
    return Check(
        f"one of {', '.join(map(str, values))}",
        lambda value: any(value == each and type(value) is type(each) for each in values),
    )


def whole(least: int, most: int | None = None) -> Check:
    """A whole number within bounds."""
    bounds = f"from {least} on" if most is None else f"from {least} to {most}"
    return Check(
        f"a whole number {bounds}",
        lambda value: type(value) is int and least <= value and (most is None or value <= most),
    )


def matching(pattern: str, wanted: str) -> Check:
    """A text, all of which matches."""
    return Check(
        wanted,
        lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value, re.ASCII)),
    )


def instance(kind: type, wanted: str) -> Check:
    return Check(wanted, lambda value: isinstance(value, kind))


def optional(check: Check) -> Check:
    """Also None, which stands for a default."""
    return Check(check.wanted, lambda value: value is None or check.is_right(value))


COUNT: Final = Check("a whole number above 0", lambda value: type(value) is int and value > 0)
AMOUNT: Final = Check(
    "a number above 0",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0,
)
FLAG: Final = instance(bool, "True or False")
CHARACTER: Final = Check("one character", lambda value: isinstance(value, str) and len(value) == 1)
TEXT: Final = Check("a text", lambda value: isinstance(value, str) and value != "")
NAMES: Final = Check(
    "a list of names of columns",
    lambda names: not isinstance(names, str) and all(isinstance(name, str) for name in names),
)
GUARANTEE: Final = instance(DeliveryGuarantee, "one of DeliveryGuarantee")
DESERIALIZER: Final = Check(
    "a DeserializationSchema, for instance SimpleStringSchema()",
    lambda value: callable(getattr(value, "deserialize", None)),
)
SERIALIZER: Final = Check(
    "a SerializationSchema, for instance SimpleStringSchema(), or a function that returns bytes",
    lambda value: callable(getattr(value, "serialize", value)),
)
