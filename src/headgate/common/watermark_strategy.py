"""Watermark strategies and what they are made of, where PyFlink has them."""

from headgate.base.elements import Watermark
from headgate.functions.watermarks import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "TimestampAssigner",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
