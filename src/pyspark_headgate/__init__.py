"""Lets PySpark find the format "headgate" by itself.

PySpark imports every top-level package whose name begins with ``pyspark_`` and registers its
``DefaultSource``; so ``spark.readStream.format("headgate")`` needs no registration where Headgate
is installed. Nothing else imports this.
"""

from headgate.spark.streaming.data_source import HeadgateDataSource as DefaultSource

__all__ = ["DefaultSource"]
