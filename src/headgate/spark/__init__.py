"""Headgate on Spark: the only room that imports pyspark, and only when a session is needed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: "SparkSession") -> None:
    """Make Headgate's formats known to a session that has not found them by itself.

    PySpark finds them where Headgate is installed for the driver's Python. It looks when a session
    first needs a format of Python, so one that runs already may not know Headgate yet.
    """
    from pyspark.errors import AnalysisException

    from headgate.spark.state_table.source import StateDataSource
    from headgate.spark.streaming.data_source import HeadgateDataSource

    for source in (HeadgateDataSource, StateDataSource):
        try:
            session.dataSource.register(source)
        except AnalysisException as error:
            # PySpark before 4.2 refuses a format that it has found by itself.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
