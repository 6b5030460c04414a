"""Files, where PyFlink has them."""

from headgate.connectors.file_sink import FileSink, OutputFileConfig, RollingPolicy
from headgate.connectors.files import FileSource, StreamFormat

__all__ = ["FileSink", "FileSource", "OutputFileConfig", "RollingPolicy", "StreamFormat"]
