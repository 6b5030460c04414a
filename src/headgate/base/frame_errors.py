"""Errors where records become rows of a DataFrame, or rows become records.

HeadgateError
├── FrameInvalid           what was given to from_dataframe() cannot be read by tasks
├── SchemaInvalid          what was given to to_dataframe() is no schema, or one with odd types
└── RecordUnfit            a record does not fit the schema of its DataFrame
"""

from headgate.base.errors import HeadgateError


class FrameInvalid(HeadgateError):
    """A DataFrame that cannot be the source of a stream."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"from_dataframe() {problem}")
        self.problem = problem


class SchemaInvalid(HeadgateError):
    """A schema that the rows of a stream cannot have."""

    def __init__(self, schema: object, problem: str) -> None:
        super().__init__(f"to_dataframe(): the schema {shown(schema)} {problem}")
        self.schema = schema
        self.problem = problem


class RecordUnfit(HeadgateError):
    """A record that is no row of the declared schema; ``column`` is empty if all of it is wrong."""

    def __init__(self, operator: str, column: str, value: object, problem: str) -> None:
        where = f"column {column!r}: " if column else ""
        super().__init__(f"operator {operator!r}: {where}{shown(value)} {problem}")
        self.operator = operator
        self.column = column
        self.problem = problem


def shown(value: object, limit: int = 200) -> str:
    """A value as an error shows it."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"a {type(value).__name__} whose repr fails ({error})"
    return text if len(text) <= limit else f"{text[:limit]}…"
