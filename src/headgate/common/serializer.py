"""Serializers of windows, where PyFlink has them."""

from headgate.core.window.window import TypeSerializer

__all__ = ["TypeSerializer"]
