"""Rows as Parquet, where PyFlink has them."""

from headgate.connectors.files.parquet import ParquetBulkWriters

__all__ = ["ParquetBulkWriters"]
