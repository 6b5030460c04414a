"""Types of records, as programs declare them: ``Types.INT()``, ``Types.ROW([...])`` and so on.

Types are plain values, equal if made alike. Every record that an operator with a declared type
emits is checked and coerced to it, a bundle at a time, before the next operator sees it. Law:
``coerced`` and ``coercer`` return exactly the Python values that the type names, or raise
TypeError; fields of rows and tuples, elements of lists and values of maps may be None, records and
keys of maps may not.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic

from headgate.api.row import Row, RowKind, make_row, names_of, rows_with, values_of
from headgate.api.types.basic_types import BASICS, EXACT, RARE, BasicType, round_floats
from headgate.api.types.coercion import (
    ColumnsCoercer,
    Mismatch,
    all_coerced,
    bulk_check,
    column_coerced,
    each_coerced,
    parts_coerced,
    rows_coerced,
)
from headgate.api.types.wires import (
    Coercer,
    FieldsWire,
    TypedSerializer,
    WireType,
    by_column,
    dict_wire,
    in_lists,
    list_wire,
    tuple_wire,
    where_there,
)
from headgate.base.checkpoints import MAP, PICKLED, ROW, TUPLE, TypeShape
from headgate.base.elements import Record, Serializer
from headgate.base.errors import PlanInvalid
from headgate.base.fields import TUPLES, FieldShape
from headgate.base.shapes import field_shape
from headgate.functions.time import Instant
from headgate.functions.type_variables import MK, T, V


@dataclass(frozen=True, slots=True)
class TypeInformation(Generic[T]):
    """What a stream's records are. Made by ``Types``."""

    def coerced(self, value: Record) -> T:
        """The value as this type has it; raises TypeError if it does not fit."""
        try:
            return self.convert(value)
        except Mismatch as mismatch:
            raise TypeError(mismatch.message(value, self)) from None

    def coercer(self) -> Coercer:
        """Coerces the records of a bundle, quicker than ``coerced`` one by one."""
        return all_coerced(self.wire(), each_coerced(self.coerced))

    def state_form(self) -> Callable[[Record], Record]:
        """A function like ``coerced`` for values in state: it does not round a FLOAT to 32 bits.

        A sum in a FLOAT state then has the digits that it has in PyFlink's cache of state.
        """
        unrounded = self.unrounded()
        if unrounded is self:
            return self.coerced

        def held(value: Record) -> Record:
            try:
                return unrounded.convert(value)
            except Mismatch as mismatch:
                raise TypeError(mismatch.message(value, self)) from None

        return held

    def unrounded(self) -> "TypeInformation[T]":
        """The type with a FLOAT that keeps all digits in place of each FLOAT."""
        return self

    def serializer(self) -> Serializer | None:
        """A serializer of coerced records that is faster than pickle; None: there is none."""
        wire = self.wire()
        return None if wire is None else TypedSerializer(self)

    def fields_wire(self) -> FieldsWire | None:
        """How the fields of records are written as columns; None: they are not."""
        return None

    def fields_coercer(self) -> ColumnsCoercer | None:
        """Coerces records that are written as columns afterwards; None: they are not."""
        return None

    def convert(self, value: Record) -> T:
        """The value as this type has it; raises Mismatch if it does not fit."""
        return value  # type: ignore[no-any-return] # any object is what it is

    def wire(self) -> WireType | None:
        """The type in msgspec's words; None: it has none, values are pickled."""
        return None

    def shape(self) -> TypeShape:
        """The note of the type in checkpoints, to compare it with that of a later program."""
        return TypeShape(f"{type(self).__module__}.{type(self).__qualname__}")

    @property
    def is_immutable(self) -> bool:
        """Nobody can change such a value, so that one that fits always will."""
        return False

    @property
    def takes_anything(self) -> bool:
        """Every object fits, None too."""
        return False

    @property
    def exact(self) -> tuple[type, tuple[int, int] | None] | None:
        """A value of this very class, within these bounds, fits as it is; None: look at each."""
        return None

    @property
    def passes_none(self) -> bool:
        """None may go from one chained function to the next."""
        return True


@dataclass(frozen=True, slots=True, init=False, repr=False)
class BasicTypeInfo(TypeInformation[T]):
    """A single value: number, text, date."""

    name: str

    def __init__(self, basic_type: BasicType | str) -> None:
        name = basic_type.name if isinstance(basic_type, BasicType) else basic_type
        object.__setattr__(self, "name", name)

    def convert(self, value: Record) -> T:
        basic = BASICS[self.name]
        try:
            return basic.convert(value)  # type: ignore[no-any-return] # of the class of its name
        except OverflowError:
            raise Mismatch(f"{basic.wants} is needed, this is out of range", value) from None
        except (TypeError, ValueError):
            raise Mismatch.of(basic.wants, value) from None

    def wire(self) -> WireType:
        name = self.name
        return WireType(
            BASICS[name].wire,
            BASICS[name].reads,
            checks=name != "INSTANT",  # a dict would pass
            keeps=name not in ("FLOAT", "DOUBLE"),  # an int becomes a float
            is_plain=name not in RARE,
            finish=round_floats if name == "FLOAT" else None,
        )

    def shape(self) -> TypeShape:
        return TypeShape(self.name)

    def unrounded(self) -> TypeInformation[T]:
        return UnroundedFloat("FLOAT") if self.name == "FLOAT" else self

    @property
    def exact(self) -> tuple[type, tuple[int, int] | None] | None:
        return EXACT.get(self.name)

    @property
    def is_immutable(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Types.{self.name}()"


class UnroundedFloat(BasicTypeInfo[Any]):
    """A FLOAT in state: it fits into 32 bits and keeps all its digits."""

    __slots__ = ()

    def convert(self, value: Record) -> float:
        super().convert(value)
        return float(value)


def _maker(name: str) -> "staticmethod[[], TypeInformation[Any]]":
    def make() -> TypeInformation[Any]:
        return BasicTypeInfo(name)

    make.__name__ = make.__qualname__ = name
    return staticmethod(make)


for _basic in BasicType:
    setattr(BasicTypeInfo, f"{_basic.name}_TYPE_INFO", _maker(_basic.name))


class DateTypeInfo(BasicTypeInfo[datetime.date]):
    """``datetime.date``."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_DATE")


class TimeTypeInfo(BasicTypeInfo[datetime.time]):
    """``datetime.time``."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_TIME")


class TimestampTypeInfo(BasicTypeInfo[datetime.datetime]):
    """``datetime.datetime``."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("SQL_TIMESTAMP")


class SqlTimeTypeInfo:
    """Makes the types of dates and times."""

    @staticmethod
    def DATE() -> TypeInformation[datetime.date]:  # noqa: N802 - the names that PyFlink has given
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TypeInformation[datetime.time]:  # noqa: N802
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TypeInformation[datetime.datetime]:  # noqa: N802
        return TimestampTypeInfo()


@dataclass(frozen=True, slots=True)
class PickledBytesTypeInfo(TypeInformation[Any]):
    """Any Python object, None too; what a stream has that declares nothing."""

    def coercer(self) -> Coercer:
        return list

    def shape(self) -> TypeShape:
        return TypeShape(PICKLED)

    @property
    def takes_anything(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "Types.PICKLED_BYTE_ARRAY()"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RowTypeInfo(TypeInformation[Row]):
    """Rows with these types and names; without names they are called f0, f1 and so on."""

    field_names: tuple[str, ...]
    field_types: tuple[TypeInformation, ...]
    _names: list[str] = field(compare=False)
    """Shared by all rows of the type, so that a pickle of many holds it once."""

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        names = field_names or _default_names(len(field_types))
        object.__setattr__(self, "field_names", tuple(names))
        object.__setattr__(self, "field_types", tuple(field_types))
        object.__setattr__(self, "_names", list(names))

    @property
    def has_own_names(self) -> bool:
        """Whether somebody has named the fields; keys of the type have no names otherwise."""
        return self._names != _default_names(len(self._names))

    def get_field_names(self) -> list[str]:
        return list(self.field_names)

    def get_field_types(self) -> list[TypeInformation]:
        return list(self.field_types)

    def get_field_index(self, field_name: str) -> int:
        """The position of a field; raises ValueError if there is none of this name."""
        if field_name not in self.field_names:
            raise ValueError(f"{self!r} has no field {field_name!r}")
        return self.field_names.index(field_name)

    def convert(self, value: Record) -> Row:
        kind = RowKind.INSERT
        if isinstance(value, Row):
            kind = value.get_row_kind()
            value = self._by_name(value)
        elif isinstance(value, Mapping):
            value = [value.get(name) for name in self.field_names]
        values = _fields("a Row, tuple, list or dict", self.field_types, value, self.field_names)
        return make_row(self._names, values, kind)

    def coercer(self) -> Coercer:
        of_tuples = tuple_wire([kind.wire() for kind in self.field_types])
        check = bulk_check(of_tuples) or _column_check(self.field_types)
        coerce = rows_coerced(self.field_names, check, each_coerced(self.coerced))
        columns = self.fields_coercer()
        return coerce if columns is None else columns.keeping(coerce)

    def wire(self) -> WireType | None:
        fields = [kind.wire() for kind in self.field_types]
        of_tuples = tuple_wire(fields)
        if of_tuples is None:
            return None
        is_plain = all(field is not None and field.is_plain for field in fields)
        to_lists = None if is_plain else _to_lists(of_tuples.revive)
        revive = _row_reviver(self._names, to_lists)
        return WireType(Row, list if is_plain else of_tuples.reads, checks=False, revive=revive)

    def fields_wire(self) -> FieldsWire | None:
        shape = field_shape(Row, self.field_names)
        return None if shape is None else _fields_wire(shape, self.field_types)

    def fields_coercer(self) -> ColumnsCoercer | None:
        return _columns_coercer(self.fields_wire(), self.field_types)

    def shape(self) -> TypeShape:
        return TypeShape(ROW, tuple(kind.shape() for kind in self.field_types), self.field_names)

    def unrounded(self) -> TypeInformation[Row]:
        types = _unrounded(self.field_types)
        return self if types == self.field_types else RowTypeInfo(types, self._names)

    def _by_name(self, row: Row) -> list[Record]:
        """Its values in the order of the type; by position if it has other names or none."""
        names, own_names = names_of(row), self.field_names
        if names is None or tuple(names) == own_names or {*names} != {*own_names}:
            return values_of(row)
        return [row[name] for name in own_names]

    def __repr__(self) -> str:
        return f"Types.ROW_NAMED({list(self.field_names)!r}, {list(self.field_types)!r})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TupleTypeInfo(TypeInformation[tuple[Any, ...]]):
    """Tuples with these types."""

    field_types: tuple[TypeInformation, ...]

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        object.__setattr__(self, "field_types", tuple(field_types))

    def get_field_types(self) -> list[TypeInformation]:
        return list(self.field_types)

    def convert(self, value: Record) -> tuple[Record, ...]:
        return tuple(_fields("a tuple, list or Row", self.field_types, value))

    def coercer(self) -> Coercer:
        wire, careful = self.wire(), each_coerced(self.coerced)
        if wire is not None and wire.checks:
            return all_coerced(wire, careful)
        return parts_coerced({tuple, list}, _column_check(self.field_types), careful)

    def wire(self) -> WireType | None:
        return tuple_wire([kind.wire() for kind in self.field_types])

    def fields_wire(self) -> FieldsWire | None:
        return _fields_wire(TUPLES, self.field_types)

    def fields_coercer(self) -> ColumnsCoercer | None:
        return _columns_coercer(self.fields_wire(), self.field_types)

    def shape(self) -> TypeShape:
        return TypeShape(TUPLE, tuple(kind.shape() for kind in self.field_types))

    def unrounded(self) -> TypeInformation[tuple[Any, ...]]:
        types = _unrounded(self.field_types)
        return self if types == self.field_types else TupleTypeInfo(types)

    @property
    def is_immutable(self) -> bool:
        return all(kind.is_immutable for kind in self.field_types)

    def __repr__(self) -> str:
        return f"Types.TUPLE({list(self.field_types)!r})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ElementsTypeInfo(TypeInformation[Any]):
    """Base of lists and arrays. A primitive array of BYTE is ``bytes``."""

    element_type: TypeInformation

    name: ClassVar[str] = ""
    """Name of the factory that makes it."""

    def __init__(self, element_type: TypeInformation) -> None:
        object.__setattr__(self, "element_type", element_type)

    @property
    def is_bytes(self) -> bool:
        return self.name == "PRIMITIVE_ARRAY" and self.element_type == BasicTypeInfo("BYTE")

    def convert(self, value: Record) -> Record:
        if self.is_bytes:
            return _bytes(value)
        if not isinstance(value, list | tuple | set | frozenset):
            items = getattr(value, "tolist", None)  # an array, perhaps numpy's
            value = value if items is None else items()
            if not isinstance(value, list):
                raise Mismatch.of("a list", value)
        kind, holds_none = self.element_type, self._holds_none
        try:
            return [None if item is None and holds_none else kind.convert(item) for item in value]
        except Mismatch:
            for at, item in enumerate(value):
                if item is not None or not holds_none:
                    _tell_place(f"element {at}", kind, item)
            raise

    def coercer(self) -> Coercer:
        wire, careful = self.wire(), each_coerced(self.coerced)
        if wire is not None and wire.checks:
            return all_coerced(wire, careful)
        elements = self.element_type.coercer()
        return parts_coerced(
            {list}, in_lists(where_there(elements) if self._holds_none else elements), careful
        )

    def wire(self) -> WireType | None:
        if self.is_bytes:
            return WireType(bytes, bytes)
        return list_wire(self.element_type.wire(), self._holds_none)

    def shape(self) -> TypeShape:
        return TypeShape(self.name, (self.element_type.shape(),))

    def unrounded(self) -> TypeInformation:
        element = self.element_type.unrounded()
        return self if element == self.element_type else type(self)(element)

    @property
    def is_immutable(self) -> bool:
        return self.is_bytes

    @property
    def _holds_none(self) -> bool:
        return self.name != "PRIMITIVE_ARRAY"

    def __repr__(self) -> str:
        return f"Types.{self.name}({self.element_type!r})"


class ListTypeInfo(ElementsTypeInfo):
    """Lists."""

    __slots__ = ()
    name = "LIST"


class BasicArrayTypeInfo(ElementsTypeInfo):
    """Arrays of single values, each perhaps None."""

    __slots__ = ()
    name = "BASIC_ARRAY"


class PrimitiveArrayTypeInfo(ElementsTypeInfo):
    """Arrays of numbers or of truth values, none of them None."""

    __slots__ = ()
    name = "PRIMITIVE_ARRAY"


class ObjectArrayTypeInfo(ElementsTypeInfo):
    """Arrays of anything."""

    __slots__ = ()
    name = "OBJECT_ARRAY"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class MapTypeInfo(TypeInformation[dict[Any, Any]]):
    """Dictionaries."""

    key_type: TypeInformation
    value_type: TypeInformation

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        object.__setattr__(self, "key_type", key_type_info)
        object.__setattr__(self, "value_type", value_type_info)

    def convert(self, value: Record) -> dict[Record, Record]:
        if not isinstance(value, Mapping):
            raise Mismatch.of("a dict", value)
        of_key, of_value = self.key_type.convert, self.value_type.convert
        try:
            return {
                of_key(key): None if item is None else of_value(item) for key, item in value.items()
            }
        except Mismatch:
            for key, item in value.items():
                _tell_place("a key", self.key_type, key)
                if item is not None:
                    _tell_place(f"the value of {key!r}", self.value_type, item)
            raise

    def wire(self) -> WireType | None:
        return dict_wire(self.key_type.wire(), self.value_type.wire())

    def shape(self) -> TypeShape:
        return TypeShape(MAP, (self.key_type.shape(), self.value_type.shape()))

    def unrounded(self) -> TypeInformation[dict[Any, Any]]:
        value = self.value_type.unrounded()
        return self if value == self.value_type else MapTypeInfo(self.key_type, value)

    def __repr__(self) -> str:
        return f"Types.MAP({self.key_type!r}, {self.value_type!r})"


def _unrounded(types: Sequence[TypeInformation]) -> tuple[TypeInformation, ...]:
    return tuple(kind.unrounded() for kind in types)


def _fields(
    wants: str, types: Sequence[TypeInformation], value: Record, names: Sequence[str] = ()
) -> list[Record]:
    if not isinstance(value, tuple | list | Row):
        raise Mismatch.of(wants, value)
    if len(value) != len(types):
        raise Mismatch(f"it has {_count(value)}, the type has {len(types)}", value)
    try:
        return [
            None if item is None else kind.convert(item)
            for kind, item in zip(types, value, strict=True)
        ]
    except Mismatch:
        for at, (kind, item) in enumerate(zip(types, value, strict=True)):
            if item is not None:
                _tell_place(f"field {names[at]!r}" if names else f"field {at}", kind, item)
        raise


def _tell_place(place: str, kind: TypeInformation, item: Record) -> None:
    """Raise the Mismatch of a part that does not fit, with its place; else return."""
    try:
        kind.convert(item)
    except Mismatch as mismatch:
        raise mismatch.within(place) from None


def _count(fields: Sequence[Record] | Row) -> str:
    return "1 field" if len(fields) == 1 else f"{len(fields)} fields"


def _fields_wire(shape: FieldShape, types: Sequence[TypeInformation]) -> FieldsWire | None:
    wires = [kind.wire() for kind in types]
    places = tuple(wire for wire in wires if wire is not None)
    if not places or len(places) < len(types):
        return None
    is_plain = all(
        isinstance(kind, BasicTypeInfo) and wire.is_plain
        for kind, wire in zip(types, places, strict=True)
    )
    return FieldsWire(shape, places, is_plain)


def _columns_coercer(
    wire: FieldsWire | None, types: Sequence[TypeInformation]
) -> ColumnsCoercer | None:
    if wire is None:
        return None
    columns = [column_coerced(kind.wire(), kind.coercer()) for kind in types]
    return ColumnsCoercer(wire, columns)


def _column_check(types: Sequence[TypeInformation]) -> Coercer:
    """For tuples with fields that cannot be checked all at once."""
    return by_column([where_there(kind.coercer()) for kind in types])


def _bytes(value: Record) -> bytes:
    try:
        if isinstance(value, bytes | bytearray | memoryview | list | tuple):
            return bytes(value)
    except (TypeError, ValueError):
        pass  # elements that are no bytes
    raise Mismatch.of("bytes, or a list of numbers from 0 to 255", value)


def _to_lists(of_fields: Coercer | None) -> Coercer:
    def changed(values: list[Record]) -> list[Record]:
        return list(map(list, values if of_fields is None else of_fields(values)))

    return changed


def _default_names(count: int) -> list[str]:
    return [f"f{index}" for index in range(count)]


def _row_reviver(names: list[str], to_lists: Coercer | None) -> Coercer:
    def revive(values: list[Record]) -> list[Record]:
        return rows_with(names, values if to_lists is None else to_lists(values))

    return where_there(revive)


class Types:
    """Makes types. ``Types.ROW([Types.STRING(), Types.INT()])`` names its fields f0, f1."""

    STRING: "staticmethod[[], TypeInformation[str]]" = _maker("STRING")
    BYTE: "staticmethod[[], TypeInformation[int]]" = _maker("BYTE")
    BOOLEAN: "staticmethod[[], TypeInformation[bool]]" = _maker("BOOLEAN")
    SHORT: "staticmethod[[], TypeInformation[int]]" = _maker("SHORT")
    INT: "staticmethod[[], TypeInformation[int]]" = _maker("INT")
    LONG: "staticmethod[[], TypeInformation[int]]" = _maker("LONG")
    FLOAT: "staticmethod[[], TypeInformation[float]]" = _maker("FLOAT")
    """32 bits; a Python float is a DOUBLE."""
    DOUBLE: "staticmethod[[], TypeInformation[float]]" = _maker("DOUBLE")
    CHAR: "staticmethod[[], TypeInformation[str]]" = _maker("CHAR")
    BIG_INT: "staticmethod[[], TypeInformation[int]]" = _maker("BIG_INT")
    BIG_DEC: "staticmethod[[], TypeInformation[Decimal]]" = _maker("BIG_DEC")
    INSTANT: "staticmethod[[], TypeInformation[Instant]]" = _maker("INSTANT")

    @staticmethod
    def SQL_DATE() -> TypeInformation[datetime.date]:  # noqa: N802
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation[datetime.time]:  # noqa: N802
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation[datetime.datetime]:  # noqa: N802
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation[Any]:  # noqa: N802
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:  # noqa: N802
        return Types.ROW_NAMED([f"f{index}" for index in range(len(field_types))], field_types)

    @staticmethod
    def ROW_NAMED(  # noqa: N802
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        if len(field_names) != len(field_types):
            raise PlanInvalid(
                f"Types.ROW_NAMED has {len(field_names)} names and {len(field_types)} types; "
                f"give one type for each name"
            )
        return RowTypeInfo(_types("ROW", field_types), field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:  # noqa: N802
        return TupleTypeInfo(_types("TUPLE", field_types))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation[Any]:  # noqa: N802
        return PrimitiveArrayTypeInfo(*_types("PRIMITIVE_ARRAY", [element_type]))

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation[V]) -> TypeInformation[list[V]]:  # noqa: N802
        return BasicArrayTypeInfo(*_types("BASIC_ARRAY", [element_type]))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation[V]) -> TypeInformation[list[V]]:  # noqa: N802
        return ObjectArrayTypeInfo(*_types("OBJECT_ARRAY", [element_type]))

    @staticmethod
    def MAP(  # noqa: N802
        key_type_info: TypeInformation[MK], value_type_info: TypeInformation[V]
    ) -> TypeInformation[dict[MK, V]]:
        return MapTypeInfo(*_types("MAP", [key_type_info, value_type_info]))

    @staticmethod
    def LIST(element_type_info: TypeInformation[V]) -> TypeInformation[list[V]]:  # noqa: N802
        return ListTypeInfo(*_types("LIST", [element_type_info]))


def _types(factory: str, types: Sequence[TypeInformation]) -> tuple[TypeInformation, ...]:
    for kind in types:
        if not isinstance(kind, TypeInformation):
            raise PlanInvalid(
                f"Types.{factory} takes types such as Types.INT(), but was given {kind!r}; "
                f"call the factory: Types.INT() instead of Types.INT or int"
            )
    return tuple(types)
