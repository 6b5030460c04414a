"""Types of records, as a program declares them: ``Types.INT()``, ``Types.ROW([...])`` and so on.

A declared type is kept: every record that the operator emits is checked and coerced to it, a bundle
at a time, before the next operator sees it (see ``type_infos``).
"""

from collections.abc import Sequence

from headgate.api.types.type_infos import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    DateTypeInfo,
    ElementsTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headgate.base.errors import PlanInvalid

__all__ = [
    "BasicArrayTypeInfo",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ElementsTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]


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
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:  # noqa: N802
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:  # noqa: N802
        return SqlTimeTypeInfo.TIMESTAMP()

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
        return RowTypeInfo(_types("ROW", field_types), field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:  # noqa: N802
        return TupleTypeInfo(_types("TUPLE", field_types))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:  # noqa: N802
        return PrimitiveArrayTypeInfo(*_types("PRIMITIVE_ARRAY", [element_type]))

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:  # noqa: N802
        return BasicArrayTypeInfo(*_types("BASIC_ARRAY", [element_type]))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:  # noqa: N802
        return ObjectArrayTypeInfo(*_types("OBJECT_ARRAY", [element_type]))

    @staticmethod
    def MAP(  # noqa: N802
        key_type_info: TypeInformation, value_type_info: TypeInformation
    ) -> TypeInformation:
        return MapTypeInfo(*_types("MAP", [key_type_info, value_type_info]))

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:  # noqa: N802
        return ListTypeInfo(*_types("LIST", [element_type_info]))


def _types(factory: str, types: Sequence[TypeInformation]) -> tuple[TypeInformation, ...]:
    for kind in types:
        if not isinstance(kind, TypeInformation):
            raise PlanInvalid(
                f"Types.{factory} takes types such as Types.INT(), but was given {kind!r}; "
                f"call the factory: Types.INT() instead of Types.INT or int"
            )
    return tuple(types)
