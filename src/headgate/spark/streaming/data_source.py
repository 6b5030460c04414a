"""The format "headgate" of Spark's readers and writers of streams.

Found by PySpark through the package ``pyspark_headgate``. It is created in Python processes of
Spark, not in the driver's, so it must be quick to import. Law: options, names and schemas that do
not fit are refused when the query is started.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from headgate.base.errors import StreamUnfit
from headgate.spark.streaming.addresses import spark_type, stream_log, stream_uri

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType

PATIENCE_S: Final = 30.0
"""How long a query waits for a job that has ended to be started again."""
PATIENCE: Final = "jobTimeout"


class HeadgateDataSource(DataSource):
    """``spark.readStream.format("headgate")`` and ``df.writeStream.format("headgate")``.

    Options: ``job`` and ``input`` or ``output``; or ``path``, the folder of the stream. Of a
    writer also ``jobTimeout``: for how many seconds it waits for a job that has ended to be started
    again.
    """

    @classmethod
    def name(cls) -> str:
        return "headgate"

    def schema(self) -> "StructType":
        return spark_type(stream_log(stream_uri(self.options, "output"), "output")[1])

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamWriter":
        from headgate.spark.streaming.stream_writer import InputStreamWriter

        writer = InputStreamWriter(self.options, schema, self._patience_s())
        writer.look()
        found: DataSourceStreamWriter = writer
        return found

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        from headgate.spark.streaming.stream_reader import OutputStreamReader

        return OutputStreamReader(self.options, schema)

    def _patience_s(self) -> float:
        text = self.options.get(PATIENCE, str(PATIENCE_S))
        try:
            return float(text)
        except ValueError:
            raise StreamUnfit(
                f'option("{PATIENCE}", {text!r}) is no number; give seconds'
            ) from None
