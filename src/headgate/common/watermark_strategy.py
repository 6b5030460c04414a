"""Watermark strategies and what they are made of, where PyFlink has them."""

from headgate.api.watermarks import WatermarkStrategy
from headgate.base.elements import Watermark
from headgate.core.chain.timestamps import TimestampAssigner
from headgate.core.chain.watermarks import WatermarkGenerator, WatermarkOutput

__all__ = [
    "TimestampAssigner",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
