"""Bounds of times and numbers, where PyFlink has them."""

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS

MAX_LONG_VALUE = MAX_WATERMARK_MS
MIN_LONG_VALUE = MIN_WATERMARK_MS

__all__ = ["MAX_LONG_VALUE", "MIN_LONG_VALUE"]
