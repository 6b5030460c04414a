"""How records become bytes in files, where PyFlink has it."""

from headgate.connectors.file_sink import Encoder

__all__ = ["Encoder"]
