"""File sinks in the words of PyFlink; the classes of ``file_sink`` say it shorter."""

import uuid
from collections.abc import Callable
from typing import Final

from headgate.base.errors import PlanInvalid
from headgate.connectors.files.buckets import Buckets, read_buckets
from headgate.connectors.files.rolling import OutputFileConfig, RollingPolicy
from headgate.connectors.files.sink import PartSink, TextEncoder, TextFileSink
from headgate.connectors.paths import AnyPath

BulkFactory = Callable[[AnyPath, OutputFileConfig, RollingPolicy, "Buckets | None"], PartSink]
"""Makes the sink of a format whose parts end with each checkpoint."""

FLINKS_DEFAULT: Final = RollingPolicy.default_rolling_policy()


class Encoder:
    """The encodings of ``FileSink``, under PyFlink's names."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> TextEncoder:
        return TextEncoder(charset_name)


class FileSink:
    """Builds a sink of files: ``FileSink.for_row_format(folder, encoder).build()``."""

    RowFormatBuilder: "type[FileSinkBuilder]"
    BulkFormatBuilder: "type[FileSinkBuilder]"

    @staticmethod
    def for_row_format(base_path: AnyPath, encoder: TextEncoder) -> "FileSinkBuilder":
        """Records as lines of text; parts go on over checkpoints."""
        return FileSinkBuilder(base_path, _text_sink(encoder), FLINKS_DEFAULT)

    @staticmethod
    def for_bulk_format(base_path: AnyPath, writer_factory: object) -> "FileSinkBuilder":
        """A format of whole files, such as Parquet; a part ends with each checkpoint."""
        make = getattr(writer_factory, "make_sink", None)
        if make is None:
            raise PlanInvalid(
                f"FileSink.for_bulk_format was given {writer_factory!r}; "
                f"give for instance ParquetBulkWriters.for_row_type(row_type)"
            )
        return FileSinkBuilder(base_path, make, RollingPolicy.on_checkpoint_rolling_policy())


class FileSinkBuilder:
    """Made by ``FileSink.for_row_format`` and ``for_bulk_format``."""

    def __init__(self, base_path: AnyPath, make: BulkFactory, rolling: RollingPolicy) -> None:
        self._base_path = base_path
        self._make = make
        self._rolling = rolling
        self._buckets: Buckets | None = None
        self._config = OutputFileConfig()
        self._readers_take_parts = False

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> "FileSinkBuilder":
        self._config = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> "FileSinkBuilder":
        self._rolling = rolling_policy
        return self

    def with_bucket_assigner(self, bucket_assigner: object) -> "FileSinkBuilder":
        """A ``BucketAssigner``, names of columns, or a function from a record to a path."""
        self._buckets = read_buckets(bucket_assigner)
        return self

    def with_bucket_check_interval(self, interval: int) -> "FileSinkBuilder":
        """Taken for PyFlink's sake: ages of parts are looked at with each checkpoint."""
        return self

    def with_readers_taking_parts(self) -> "FileSinkBuilder":
        """Readers move or delete parts; PyFlink has no such method."""
        self._readers_take_parts = True
        return self

    def build(self) -> PartSink:
        """Each sink that is built has parts of its own, so that a second run adds to the first."""
        config = self._config
        named = OutputFileConfig(f"{config.part_prefix}-{uuid.uuid4()}", config.part_suffix)
        sink = self._make(self._base_path, named, self._rolling, self._buckets)
        object.__setattr__(sink, "readers_take_parts", self._readers_take_parts)
        return sink


# PyFlink has them inside of the class that they belong to.
FileSink.RowFormatBuilder = FileSink.BulkFormatBuilder = FileSinkBuilder


def _text_sink(encoder: TextEncoder) -> BulkFactory:
    def make(
        base_path: AnyPath,
        config: OutputFileConfig,
        rolling: RollingPolicy,
        buckets: Buckets | None,
    ) -> TextFileSink:
        return TextFileSink(
            base_path,
            config.part_prefix,
            config.part_suffix,
            encoding=encoder.encoding,
            rolling_policy=rolling,
            bucket_assigner=buckets,
        )

    return make
