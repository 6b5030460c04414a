"""Classes of every kind that users make records of, for the tests of copies and of shapes.

They stand in a module, so that pickle finds them in another process.
"""

import copyreg
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import attrs
import msgspec


class Plain:
    def __init__(self, name: Any, amount: Any) -> None:
        self.name = name
        self.amount = amount

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Data:
    name: Any
    amount: Any
    tags: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slots:
    name: Any
    amount: Any


@dataclass(slots=True)
class MoreSlots(Slots):
    rest: Any = None


@dataclass(frozen=True)
class Frozen:
    name: Any
    amount: Any


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    name: Any
    amount: Any


class Named(NamedTuple):
    name: Any
    amount: Any


class Struct(msgspec.Struct):
    name: Any
    amount: Any


class FrozenStruct(msgspec.Struct, frozen=True):
    name: Any
    amount: Any


class KeywordStruct(msgspec.Struct, kw_only=True):
    """Its fields are those of its class before those of its base, and are taken by name."""

    name: Any
    amount: Any

    @classmethod
    def made(cls, name: Any, amount: Any) -> "KeywordStruct":
        return cls(name=name, amount=amount)


class MoreStruct(KeywordStruct):
    more: int = 7


class CheckedStruct(msgspec.Struct):
    """Code of its own runs when it is made."""

    name: Any
    amount: Any

    def __post_init__(self) -> None:
        self.amount = self.amount


@attrs.define
class Attrs:
    name: Any
    amount: Any


@attrs.frozen
class FrozenAttrs:
    name: Any
    amount: Any


@attrs.frozen(cache_hash=True)
class HashedAttrs:
    """Remembers its hash, which another process would not share."""

    name: Any
    amount: Any


class MethodsOfNamed(Named):
    """A named tuple with a property."""

    __slots__ = ()

    @property
    def both(self) -> tuple[Any, Any]:
        return self.name, self.amount


class DictOverNamed(Named):
    """A named tuple to which attributes can be added."""


class PropertyNamed(Named):
    """A property stands in for a field."""

    __slots__ = ()

    @property
    def name(self) -> Any:  # type: ignore[override]
        return repr(tuple.__getitem__(self, 0))


class ItemsNamed(Named):
    """Code of its own says what its items are."""

    __slots__ = ()

    def __getitem__(self, place: Any) -> Any:
        return repr(tuple.__getitem__(self, place))


class OtherFieldsNamed(Named):
    __slots__ = ()
    _fields = ("other", "fields")


class RegisteredNamed(Named):
    __slots__ = ()


copyreg.pickle(RegisteredNamed, lambda value: (RegisteredNamed, tuple(value)))


class PropertyStruct(Struct):
    """A property stands in for a field of the base."""

    @property
    def name(self) -> Any:  # type: ignore[override]
        return "a name"


class Cached:
    __slots__ = ("cache",)


class CachedStruct(Cached, msgspec.Struct):
    """Has a slot that is no field."""

    name: Any
    amount: Any


class RegisteredStruct(Struct):
    pass


copyreg.pickle(RegisteredStruct, lambda value: (RegisteredStruct, (value.name, value.amount)))


@dataclass
class DictOverSlots(Slots):
    """Has the slots of its base and a ``__dict__`` beside them."""


class OwnState(Plain):
    """Says itself what it is pickled as."""

    def __getstate__(self) -> Any:
        return [self.name, self.amount]

    def __setstate__(self, state: Any) -> None:
        self.name, self.amount = state


class Reduced(Plain):
    def __reduce__(self) -> Any:
        return Reduced, (self.name, self.amount)


class Registered(Plain):
    """Pickled by a function that is registered for it."""


copyreg.pickle(Registered, lambda value: (Registered, (value.name, value.amount)))


class Guarded(Plain):
    """Refuses assignments of users, as classes do that check them."""

    def __init__(self, name: Any, amount: Any) -> None:
        vars(self).update(name=name, amount=amount)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} is fixed")


class Watched(Plain):
    """Its amount is a property over an attribute of the same name; code runs at each access."""

    calls: ClassVar[list[str]] = []

    @property
    def amount(self) -> Any:
        self.calls.append("read")
        return vars(self)["amount"]

    @amount.setter
    def amount(self, value: Any) -> None:
        self.calls.append("set")
        vars(self)["amount"] = value


class Hidden(Slots):
    """Slots without a ``__dict__``, of which one hides that of its base."""

    __slots__ = ("amount",)


class Keyword:
    """A slot that cannot be written as an attribute."""

    __slots__ = ("class",)

    def __init__(self, name: Any, amount: Any) -> None:
        setattr(self, "class", (name, amount))

    def __eq__(self, other: object) -> bool:
        return type(other) is Keyword and getattr(other, "class") == getattr(self, "class")

    __hash__ = None  # type: ignore[assignment]


class Asked:
    """Answers for attributes that are not there, as wrappers do."""

    __slots__ = ("amount", "name")

    def __init__(self, name: Any, amount: Any) -> None:
        self.name = name
        self.amount = amount

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return "made up"

    def __eq__(self, other: object) -> bool:
        return type(other) is Asked and (other.name, other.amount) == (self.name, self.amount)

    __hash__ = None  # type: ignore[assignment]


def as_dict(name: Any, amount: Any) -> dict[str, Any]:
    return {"name": name, "amount": amount}


SHAPED: list[Callable[[Any, Any], Any]] = [
    *(as_dict, Plain, Data, Slots, MoreSlots, Frozen, FrozenSlots, Guarded, Watched),
    *(Named, MethodsOfNamed, Struct, FrozenStruct, KeywordStruct.made, Attrs, FrozenAttrs),
]
"""Records that travel as columns."""

PICKLED: list[Callable[[Any, Any], Any]] = [
    *(DictOverSlots, OwnState, Reduced, Registered, Hidden, Keyword, Asked),
    *(CheckedStruct, DictOverNamed, HashedAttrs, PropertyNamed, ItemsNamed, OtherFieldsNamed),
    *(RegisteredNamed, PropertyStruct, CachedStruct, RegisteredStruct),
]
"""Records that only pickle can write."""
