"""Types of records, where PyFlink has them."""

from headgate.api.types import RowTypeInfo, TupleTypeInfo, TypeInformation, Types

__all__ = ["RowTypeInfo", "TupleTypeInfo", "TypeInformation", "Types"]
