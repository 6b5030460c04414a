"""Headgate: stream processing in Python, one record at a time, on Spark.

Importing this package is cheap: it loads neither pyspark nor pyarrow and starts nothing.
"""

__version__ = "0.1.0"
