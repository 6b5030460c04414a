"""A record as text: what ``print`` shows and text files hold.

A string stays as it is, a Row becomes ``+I[a,1]``, everything else what ``str`` makes of it.
"""

from headgate.api.row import Row
from headgate.base.elements import Record


def record_text(record: Record) -> str:
    """One record; a Row within a Row is written in the same way."""
    if isinstance(record, str):
        return record
    if isinstance(record, Row):
        return f"{record.get_row_kind().short}[{','.join(map(record_text, record))}]"
    return str(record)
