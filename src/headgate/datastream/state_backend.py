"""Where state lives, where PyFlink has it."""

from headgate.api.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)

__all__ = ["EmbeddedRocksDBStateBackend", "HashMapStateBackend", "StateBackend"]
