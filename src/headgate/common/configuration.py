"""Configuration, where PyFlink has it."""

from headgate.api.settings.configuration import Configuration

__all__ = ["Configuration"]
