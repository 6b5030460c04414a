"""What the instances of a class consist of, found out once for a class.

Law: an instance with a layout is what its slots and its ``__dict__`` hold, and nothing more; a new
instance that is given the same is equal to it, and pickle would make it in the same way.
"""

import copyreg
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from keyword import iskeyword
from types import MemberDescriptorType
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class InstanceLayout:
    """How instances of one class are laid out; ``layout_of`` finds it."""

    kind: type
    slots: tuple[str, ...]
    has_dict: bool
    takes_assignments: bool
    """Whether an attribute is set by assigning it; otherwise a method of the class decides."""
    frozen_fields: tuple[str, ...]
    """All that an instance holds, if its class is a dataclass that refuses assignments."""


def layout_of(kind: Any) -> InstanceLayout | None:
    """None: an instance is more than what it holds, or only its own methods know how it is made."""
    if not is_made_from_state(kind) or has_own_state(kind) or issubclass(kind, Enum):
        return None
    slots = dict(_slots(kind))
    if any(
        member_of(kind, name) is not slot or not is_code_name(name) for name, slot in slots.items()
    ):
        return None
    if slots and hasattr(kind, "__getattr__"):  # it would be asked for slots that are empty
        return None
    return InstanceLayout(
        kind,
        tuple(slots),
        kind.__dictoffset__ != 0,
        kind.__setattr__ is object.__setattr__,
        tuple(_frozen_fields(kind, slots)),
    )


def is_made_from_state(kind: Any) -> bool:
    """Whether pickle makes an empty instance and gives it the state of the other."""
    return (
        kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__new__ is object.__new__
        and kind.__getattribute__ is object.__getattribute__
        and not hasattr(kind, "__getnewargs__")
        and not hasattr(kind, "__getnewargs_ex__")
        and kind not in copyreg.dispatch_table
        and kind.__basicsize__ == _size_without_extras(kind)
    )


def has_own_state(kind: Any) -> bool:
    """Whether a method of the class says what its state is, or takes it."""
    default = getattr(object, "__getstate__", None)
    methods = getattr(kind, "__getstate__", default), getattr(kind, "__setstate__", None)
    # Classes with slots have both from the decorators of dataclasses and attrs: the state is their
    # fields. A hash that attrs remembers is no field, and differs from process to process.
    return hasattr(kind, "_attrs_cached_hash") or any(
        method is not usual and getattr(method, "__module__", "") not in _DECORATORS
        for method, usual in zip(methods, (default, None), strict=True)
    )


_DECORATORS = ("dataclasses", "attr._make")


def is_named_tuple(kind: Any) -> bool:
    """Whether it is a tuple with names, and nothing more."""
    made = next((base for base in kind.__mro__ if base.__bases__ == (tuple,)), None)
    return (
        made is not None
        and hasattr(made, "_fields")
        and kind.__dictoffset__ == 0
        and kind.__new__ is made.__new__
        and kind.__getnewargs__ is made.__getnewargs__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__getattribute__ is tuple.__getattribute__
        and kind.__getitem__ is tuple.__getitem__
        and kind.__iter__ is tuple.__iter__
        and kind not in copyreg.dispatch_table
        and not hasattr(kind, "__getnewargs_ex__")
        and kind._fields is made._fields
        and all(member_of(kind, name) is vars(made).get(name) for name in kind._fields)
        and not has_own_state(kind)
    )


def is_plain_struct(kind: Any) -> bool:
    """Whether it is a struct of msgspec that is copied and pickled as structs are."""
    struct: Any = msgspec.Struct
    return (
        issubclass(kind, struct)
        and kind.__dictoffset__ == 0
        and kind.__copy__ is struct.__copy__
        and kind.__reduce__ is struct.__reduce__
        and kind.__getattribute__ is struct.__getattribute__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind not in copyreg.dispatch_table
        and type(kind).__call__ is type(struct).__call__
        and {name for name, _ in _slots(kind)} == {*kind.__struct_fields__}
        and all(type(member_of(kind, n)) is MemberDescriptorType for n in kind.__struct_fields__)
        and not hasattr(kind, "__getattr__")
    )


def give_state(twin: Any, state: Any) -> None:
    """Set the state of an empty instance, as pickle does."""
    take = getattr(twin, "__setstate__", None)
    if take is not None:
        take(state)
        return
    attributes, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    if attributes:
        twin.__dict__.update(attributes)
    for name, item in (slots or {}).items():
        setattr(twin, name, item)


def is_code_name(name: str) -> bool:
    """Whether code that is written with this name for an attribute means this very name."""
    # Python reads other letters in a normal form: the micro sign as a Greek one.
    return name.isascii() and name.isidentifier() and not iskeyword(name) and name != "__debug__"


def member_of(kind: type, name: str) -> object:
    """What a name finds in a class, without running code of the class; None: nothing."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def takes_over(member: object) -> bool:
    """Whether code decides what happens when an attribute of this name is set or read."""
    return hasattr(type(member), "__set__") or hasattr(type(member), "__delete__")


def _size_without_extras(kind: Any) -> int:
    """How large an instance is that has slots and a ``__dict__``, and no fields of a C library."""
    names = [f"slot_{number}" for number, _ in enumerate(_slots(kind))]
    names += ["__dict__"] if kind.__dictoffset__ else []
    names += ["__weakref__"] if kind.__weakrefoffset__ else []
    like: Any = type("Like", (), {"__slots__": names})
    size: int = like.__basicsize__
    return size


def _slots(kind: type) -> Iterator[tuple[str, MemberDescriptorType]]:
    """Slots of a class, then of its bases; a slot that hides another stands for both."""
    seen: set[str] = set()
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if type(member) is MemberDescriptorType and name not in seen:
                seen.add(name)
                yield name, member


def _makes_attributes(kind: type) -> bool:
    """Whether a member of the class adds attributes when it is asked, as cached properties do."""
    members = [type(member) for base in kind.__mro__ for member in vars(base).values()]
    return any(
        hasattr(member, "__get__") and hasattr(member, "__set_name__") and member is not property
        for member in members
    )


def _frozen_fields(kind: Any, slots: dict[str, MemberDescriptorType]) -> list[str]:
    parameters = vars(kind).get("__dataclass_params__") if is_dataclass(kind) else None
    if parameters is None or not parameters.frozen or _makes_attributes(kind):
        return []
    names = [field.name for field in fields(kind)]
    if kind.__dictoffset__:
        is_plain = not slots and not any(takes_over(member_of(kind, name)) for name in names)
        return names if is_plain else []
    return names if set(slots) == {*names} else []
