"""What a checkpoint notes about each state: its name, kind and declared types.

A state that is opened after a restore is compared with its note before anything is read from it.
Law: a shape holds names only, so that any later version of a program can read it, also one whose
classes are gone; the same program gives the same shapes every time.
"""

from typing import Final

import msgspec

KEYED: Final = "keyed"
"""The scope of state by key."""
WINDOWED: Final = "by window"
"""The scope of state by key and window."""
OPERATOR: Final = "operator"
"""The scope of what an operator keeps by itself: the type of its keys, the contents of windows."""
FUNCTION: Final = "function: "
"""With the name of a function: the scope of its lists and broadcast maps."""


class TypeShape(msgspec.Struct, frozen=True, array_like=True):
    """A declared type by the name of its factory, with the types that it is made of."""

    name: str
    parts: tuple["TypeShape", ...] = ()
    fields: tuple[str, ...] = ()
    """The names of a row's parts."""

    def __str__(self) -> str:
        if "." in self.name:  # the class of somebody else's type
            return self.name
        parts = ", ".join(map(str, self.parts))
        if self.fields:
            return f"Types.{self.name}({list(self.fields)!r}, [{parts}])"
        return (
            f"Types.{self.name}([{parts}])" if self.name == TUPLE else f"Types.{self.name}({parts})"
        )


TUPLE: Final = "TUPLE"
ROW: Final = "ROW_NAMED"
MAP: Final = "MAP"
PICKLED: Final = "PICKLED_BYTE_ARRAY"
PRIMITIVE_ARRAY: Final = "PRIMITIVE_ARRAY"
LISTS: Final = ("BASIC_ARRAY", "LIST", "OBJECT_ARRAY")
"""Names of types whose values are lists that may hold None."""


class StateShape(msgspec.Struct, frozen=True):
    """One state of an operator."""

    name: str
    kind: str
    """As a descriptor has it: ``value``, ``list``, ``map``, ``reducing`` …"""
    types: tuple[TypeShape | None, ...] = ()
    """One; for a map two, of its keys and its values. None: nothing was declared."""
    scope: str = KEYED

    def __str__(self) -> str:
        declared = [str(shape) for shape in self.types if shape is not None]
        return f"{self.kind} of {', '.join(declared)}" if declared else self.kind
