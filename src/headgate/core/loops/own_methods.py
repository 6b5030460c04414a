"""Which methods of an object leave some of its attributes as they are, by their instructions.

Helper methods are called from loops in which states of the object are inlined. Law: a method that
is recognised, and whatever it calls of the object, assigns none of these attributes and hands the
object to nobody; it may be wrong on the safe side only.
"""

import dis
from collections.abc import Collection, Iterator
from inspect import getattr_static
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Final

from headgate.core.loops.bodies import FRAME_READERS

MOST_METHODS: Final = 32
"""A call that may reach more of them is not followed."""


def leaves_alone(owner: object, method: str, attributes: Collection[str]) -> bool:
    """Whether a call of this method of the object leaves its attributes alone."""
    known = {method}
    left = [method]
    while left:
        found = _reached(owner, left.pop(), attributes)
        if found is None or len(known) > MOST_METHODS:
            return False
        left += found - known
        known |= found
    return True


def found_by_code(owner: object, names: Collection[str]) -> set[str]:
    """The attributes that code of the class gives: methods, properties and the like."""
    found = {name: getattr_static(type(owner), name, None) for name in names}
    return {
        name
        for name, held in found.items()
        if hasattr(held, "__get__") and not isinstance(held, MemberDescriptorType)
    }


def _reached(owner: object, method: str, attributes: Collection[str]) -> set[str] | None:
    """The methods of the object that this one reaches; None: it may change an attribute."""
    kind, held = type(owner), getattr(owner, "__dict__", {})
    if kind.__getattribute__ is not object.__getattribute__ or method in held:
        return None
    function = getattr_static(kind, method, None)
    if isinstance(function, property) and function.fset is None:
        function = function.fget
    if isinstance(function, staticmethod) and isinstance(function.__func__, FunctionType):
        return set()  # it is not given the object
    if not isinstance(function, FunctionType) or not function.__code__.co_argcount:
        return None
    code = function.__code__
    this = code.co_varnames[0]
    if this in code.co_cellvars:  # a function within it has the object
        return None
    if FRAME_READERS.intersection(code.co_names):  # super() finds it
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in _IDLE]
    reached: set[str] = set()
    for step, next_step in zip(steps, [*steps[1:], None], strict=True):
        if step.opname in ("STORE_ATTR", "DELETE_ATTR") and step.argval in attributes:
            return None
        moved = [*_variables(step)]
        if this not in moved:
            continue
        is_read = step.opname in _LOADS and moved.count(this) == 1 and moved[-1] == this
        if not is_read or next_step is None or next_step.opname not in _ATTRIBUTES:
            return None
        name = next_step.argval
        if name.startswith("__"):  # ``__dict__``, ``__setattr__``
            return None
        if next_step.opname == "STORE_ATTR":
            continue
        if isinstance(held.get(name), MethodType):
            return None
        if name not in held:
            reached |= found_by_code(owner, {name})
    return reached


def _variables(step: dis.Instruction) -> Iterator[str]:
    """The local variables that an instruction reads or writes."""
    if "FAST" in step.opname:
        yield from step.argval if isinstance(step.argval, tuple) else [step.argval]


_IDLE: Final = frozenset({"RESUME", "NOP", "CACHE", "EXTENDED_ARG"})
_LOADS: Final = frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST"}
)
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"})
