"""A record as text: what ``print`` shows and text files hold.

Without a declared type it is what ``str`` makes of it, with one what Java writes (``java_text``).
Law: so do PyFlink's print and its files of rows, also where they differ: print writes the fields of
a Row by Python's ``str``, ``+I[a,True]``, a file by Java, ``+I[a, true]``.
"""

from headgate.api.row import Row
from headgate.api.types.types import RowTypeInfo, TypeInformation
from headgate.connectors.formats.java_text import Text, java_text


def printed_text(type_info: TypeInformation | None) -> Text:
    """What ``print`` shows of records of this type."""
    return _row_text if isinstance(type_info, RowTypeInfo) else written_text(type_info)


def written_text(type_info: TypeInformation | None) -> Text:
    """What a text file holds of records of this type."""
    return str if type_info is None or type_info.takes_anything else java_text(type_info)


def _row_text(row: Row) -> str:
    return f"{row.get_row_kind().short}[{','.join(map(str, row))}]"
