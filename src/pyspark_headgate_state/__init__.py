"""Lets PySpark find the format "headgate-state" by itself.

PySpark imports every top-level package whose name begins with ``pyspark_`` and registers its
``DefaultSource``; so ``spark.read.format("headgate-state")`` needs no registration where Headgate
is installed. Nothing else imports this.
"""

from headgate.spark.state_table.source import StateDataSource as DefaultSource

__all__ = ["DefaultSource"]
