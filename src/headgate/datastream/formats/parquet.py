"""Rows as Parquet, where PyFlink has them."""

from headgate.connectors.files.parquet import ParquetBulkWriters
from headgate.connectors.files.parquet_source import ParquetColumnarRowInputFormat

__all__ = ["ParquetBulkWriters", "ParquetColumnarRowInputFormat"]
