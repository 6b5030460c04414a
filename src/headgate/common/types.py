"""Rows, where PyFlink has them."""

from headgate.api.row import Row, RowKind

__all__ = ["Row", "RowKind"]
