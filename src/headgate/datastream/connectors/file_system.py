"""Files, where PyFlink has them."""

from headgate.connectors.files.buckets import BucketAssigner
from headgate.connectors.files.rolling import OutputFileConfig, RollingPolicy
from headgate.connectors.files.sink_builder import FileSink
from headgate.connectors.files.source import FileSource, FileSourceBuilder, StreamFormat

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
