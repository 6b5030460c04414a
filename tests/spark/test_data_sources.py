"""Spark finds Headgate's formats: by itself, and by being told."""

import pytest

import headgate.spark


def test_spark_finds_the_format_without_registration(spark):
    from pyspark.sql.datasource import DataSource

    class OfTheFirst(DataSource):
        """Registered in one session, as tests may have done with Headgate's."""

        @classmethod
        def name(cls):
            return "of-the-first"

    spark.dataSource.register(OfTheFirst)
    other = spark.newSession()  # knows nothing of what was registered elsewhere
    with pytest.raises(Exception, match=r"DATA_SOURCE_NOT_FOUND.* of-the-first"):
        other.readStream.format("of-the-first").schema("id long").load()

    frame = other.readStream.format("headgate").schema("id long").load()

    assert frame.isStreaming


@pytest.mark.spark_smoke
def test_a_session_can_be_told_of_the_formats(spark):
    headgate.spark.register(spark)

    assert spark.readStream.format("headgate").schema("id long").load().isStreaming
