"""What all sources of text lines share: which encodings they take, and how long a line may be."""

import codecs
from typing import Final

from headgate.base.errors import PlanInvalid

MAX_LINE_BYTES: Final = 16 << 20
"""A longer line is more likely a wrong delimiter or a binary file than a record."""


def check_text(source: str, encoding: str, errors: str, max_line_bytes: int) -> None:
    """Refuse in the driver what no task could read."""
    try:
        codecs.lookup(encoding)
        codecs.lookup_error(errors)
    except LookupError as error:
        raise PlanInvalid(f"{source}: {error}; name one that Python knows") from None
    if not encoding_name(encoding).startswith("utf-8") and "\r\n".encode(encoding) != b"\r\n":
        raise PlanInvalid(
            f"{source}: in {encoding} a line does not end with a newline byte; "
            f"convert the text to UTF-8"
        )
    if max_line_bytes < 1:
        raise PlanInvalid(f"{source}: max_line_bytes is {max_line_bytes}; give 1 or more")


def encoding_name(encoding: str) -> str:
    """As Python itself calls it: ``UTF8`` becomes ``utf-8``."""
    return codecs.lookup(encoding).name
