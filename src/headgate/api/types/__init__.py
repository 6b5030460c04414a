"""Types of records: declared, coerced, serialized; rows."""
