"""Types of records, as a program declares them: ``Types.INT()``, ``Types.ROW([...])`` and so on.

A type is a plain value: equal if made alike. ``from_collection`` uses ``shaped`` to turn tuples and
lists into the rows and tuples that the type names; other values stay as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.api.row import Row, named_row
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid


@dataclass(frozen=True, slots=True)
class TypeInformation:
    """What a stream's records are. Made by ``Types``."""

    def shaped(self, value: Record) -> Record:
        """The value as a row or tuple, if that is what the type says."""
        return value


@dataclass(frozen=True, slots=True)
class BasicTypeInfo(TypeInformation):
    """A single value: number, text, date."""

    name: str

    def __repr__(self) -> str:
        return f"Types.{self.name}()"


@dataclass(frozen=True, slots=True)
class PickledBytesTypeInfo(TypeInformation):
    """Any Python object; what a stream has that declares nothing."""

    def __repr__(self) -> str:
        return "Types.PICKLED_BYTE_ARRAY()"


@dataclass(frozen=True, slots=True)
class RowTypeInfo(TypeInformation):
    """Rows with these names and types."""

    field_names: tuple[str, ...]
    field_types: tuple[TypeInformation, ...]

    def get_field_names(self) -> list[str]:
        return list(self.field_names)

    def get_field_types(self) -> list[TypeInformation]:
        return list(self.field_types)

    def shaped(self, value: Record) -> Record:
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = [value.get(name) for name in self.field_names]
        elif isinstance(value, Row) and value.get_field_names() is not None:
            value = self._by_name(value)
        kind = value.get_row_kind() if isinstance(value, Row) else None
        row = named_row(self.field_names, _fields_shaped(self, self.field_types, value))
        if kind is not None:
            row.set_row_kind(kind)
        return row

    def _by_name(self, row: Row) -> Row:
        """Its fields in the order of the type, if it has them all."""
        names = row.get_field_names() or []
        if sorted(names) != sorted(self.field_names):
            return row  # other names: by position
        return Row.of_kind(row.get_row_kind(), *[row[name] for name in self.field_names])

    def __repr__(self) -> str:
        return f"Types.ROW_NAMED({list(self.field_names)!r}, {list(self.field_types)!r})"


@dataclass(frozen=True, slots=True)
class TupleTypeInfo(TypeInformation):
    """Tuples with these types."""

    field_types: tuple[TypeInformation, ...]

    def get_field_types(self) -> list[TypeInformation]:
        return list(self.field_types)

    def shaped(self, value: Record) -> Record:
        if value is None:
            return None
        return tuple(_fields_shaped(self, self.field_types, value))

    def __repr__(self) -> str:
        return f"Types.TUPLE({list(self.field_types)!r})"


@dataclass(frozen=True, slots=True)
class ListTypeInfo(TypeInformation):
    """Lists and arrays; ``name`` tells which factory made it."""

    name: str
    element_type: TypeInformation

    def shaped(self, value: Record) -> Record:
        if not isinstance(value, list):
            return value
        return [self.element_type.shaped(item) for item in value]

    def __repr__(self) -> str:
        return f"Types.{self.name}({self.element_type!r})"


@dataclass(frozen=True, slots=True)
class MapTypeInfo(TypeInformation):
    """Dictionaries."""

    key_type: TypeInformation
    value_type: TypeInformation

    def shaped(self, value: Record) -> Record:
        if not isinstance(value, dict):
            return value
        return {
            self.key_type.shaped(key): self.value_type.shaped(item) for key, item in value.items()
        }

    def __repr__(self) -> str:
        return f"Types.MAP({self.key_type!r}, {self.value_type!r})"


class Types:
    """Makes types. ``Types.ROW([Types.STRING(), Types.INT()])`` names its fields f0, f1."""

    @staticmethod
    def STRING() -> TypeInformation:  # noqa: N802 - the names that PyFlink has given
        return BasicTypeInfo("STRING")

    @staticmethod
    def BYTE() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("BYTE")

    @staticmethod
    def BOOLEAN() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("BOOLEAN")

    @staticmethod
    def SHORT() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("SHORT")

    @staticmethod
    def INT() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("INT")

    @staticmethod
    def LONG() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("LONG")

    @staticmethod
    def FLOAT() -> TypeInformation:  # noqa: N802
        """32 bits; a Python float is a DOUBLE."""
        return BasicTypeInfo("FLOAT")

    @staticmethod
    def DOUBLE() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("DOUBLE")

    @staticmethod
    def CHAR() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("CHAR")

    @staticmethod
    def BIG_INT() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("BIG_INT")

    @staticmethod
    def BIG_DEC() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("BIG_DEC")

    @staticmethod
    def INSTANT() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("INSTANT")

    @staticmethod
    def SQL_DATE() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("SQL_DATE")

    @staticmethod
    def SQL_TIME() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("SQL_TIME")

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:  # noqa: N802
        return BasicTypeInfo("SQL_TIMESTAMP")

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:  # noqa: N802
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
        return RowTypeInfo(tuple(field_names), _types("ROW", field_types))

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:  # noqa: N802
        return TupleTypeInfo(_types("TUPLE", field_types))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:  # noqa: N802
        return ListTypeInfo("PRIMITIVE_ARRAY", *_types("PRIMITIVE_ARRAY", [element_type]))

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:  # noqa: N802
        return ListTypeInfo("BASIC_ARRAY", *_types("BASIC_ARRAY", [element_type]))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:  # noqa: N802
        return ListTypeInfo("OBJECT_ARRAY", *_types("OBJECT_ARRAY", [element_type]))

    @staticmethod
    def MAP(  # noqa: N802
        key_type_info: TypeInformation, value_type_info: TypeInformation
    ) -> TypeInformation:
        return MapTypeInfo(*_types("MAP", [key_type_info, value_type_info]))

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:  # noqa: N802
        return ListTypeInfo("LIST", *_types("LIST", [element_type_info]))


def _types(factory: str, types: Sequence[TypeInformation]) -> tuple[TypeInformation, ...]:
    for kind in types:
        if not isinstance(kind, TypeInformation):
            raise PlanInvalid(
                f"Types.{factory} takes types such as Types.INT(), but was given {kind!r}; "
                f"call the factory: Types.INT() instead of Types.INT or int"
            )
    return tuple(types)


def _fields_shaped(
    kind: TypeInformation, types: Sequence[TypeInformation], value: Record
) -> list[Record]:
    if not isinstance(value, tuple | list | Row):
        raise PlanInvalid(
            f"{value!r} is declared as {kind!r}; give a Row, tuple or list for each record"
        )
    if len(value) != len(types):
        raise PlanInvalid(
            f"{value!r} has {len(value)} fields, but {kind!r} has {len(types)}; "
            f"give each record a value for every field"
        )
    return [each.shaped(item) for each, item in zip(types, value, strict=True)]
