"""Headgate on Spark: the only room that imports pyspark, and only when a session is needed."""
