"""Spark DataFrames as sources and sinks of a job."""
