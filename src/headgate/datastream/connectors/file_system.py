"""Files, where PyFlink has them."""

from headgate.connectors.files.layout import BucketAssigner, OutputFileConfig, RollingPolicy
from headgate.connectors.files.sink import FileSink
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
