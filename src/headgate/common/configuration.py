"""Configuration, where PyFlink has it."""

from headgate.api.configuration import Configuration

__all__ = ["Configuration"]
