"""Pipelines between tables: whatever Spark reads and writes is a source and a sink."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

import headgate

pytest.importorskip("psycopg")

from tests.connectors.postgres.kit import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = Path("/usr/share/java/postgresql.jar")


@pytest.fixture
def database(spark: "SparkSession") -> Iterator[dict[str, str]]:
    """Options of Spark's JDBC source and sink for a real PostgreSQL."""
    if not DRIVER.exists():
        pytest.skip("PostgreSQL's driver is not installed; run make tools")
    spark.sql(f"ADD JAR {DRIVER}")
    with TemporaryDirectory(prefix="headgate-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield {
                "url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
                "user": "postgres",
                "driver": "org.postgresql.Driver",
            }
        finally:
            server.stop()


def added_up(stream: Any) -> Any:
    fares = stream.map(lambda row: (row.car, row.fare)).key_by(lambda fare: fare[0])
    return fares.sum(1)


def test_rows_go_from_parquet_to_postgres_to_a_table_of_the_catalog(
    spark: "SparkSession", database: dict[str, str], tmp_path: Path
) -> None:
    rides = spark.range(100).selectExpr(
        "id AS start", "concat('c', id % 3) AS car", "CAST(id AS double) AS fare"
    )
    rides.write.parquet(str(tmp_path / "rides"))
    schema = "car string, total double"
    totals: Any = spark.read.parquet(str(tmp_path / "rides")).transform(
        headgate.transform, added_up, schema, order_by="start", partition_by="car"
    )
    totals.write.format("jdbc").options(dbtable="totals", **database).save()

    stored = spark.read.format("jdbc").options(dbtable="totals", **database).load()
    highest: Any = stored.transform(
        headgate.transform,
        lambda stream: stream.key_by(lambda row: row.car).max("total"),
        schema,
        parallelism=2,
    )
    place = str(tmp_path / "highest")
    highest.write.option("path", place).mode("overwrite").saveAsTable("highest_totals")
    try:
        found = spark.sql("SELECT car, max(total) FROM highest_totals GROUP BY car ORDER BY car")
        wanted = [(f"c{n}", float(sum(range(n, 100, 3)))) for n in range(3)]
        assert [tuple(row) for row in found.collect()] == wanted
        assert spark.table("highest_totals").count() == 3, "a row for each car"
    finally:
        spark.sql("DROP TABLE highest_totals")
