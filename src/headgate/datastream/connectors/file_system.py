"""Files, where PyFlink has them."""

from headgate.connectors.buckets import BucketAssigner
from headgate.connectors.file_sink_builder import FileSink
from headgate.connectors.files import FileSource, FileSourceBuilder, StreamFormat
from headgate.connectors.rolling import OutputFileConfig, RollingPolicy

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
