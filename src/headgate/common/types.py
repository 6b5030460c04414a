"""Rows, where PyFlink has them."""

from headgate.api.types.row import Row, RowKind

__all__ = ["Row", "RowKind"]
