"""Rows as Parquet, where PyFlink has them."""

from headgate.connectors.parquet_sink import ParquetBulkWriters

__all__ = ["ParquetBulkWriters"]
