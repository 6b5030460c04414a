"""Serializers of windows, where PyFlink has them."""

from headgate.functions.window import TypeSerializer

__all__ = ["TypeSerializer"]
