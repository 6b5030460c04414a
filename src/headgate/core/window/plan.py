"""The border of the room: how windows are described, and what makes an operator of it."""

from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import (
    Aggregated,
    Contents,
    Listed,
    Reduced,
    Style,
    WindowCall,
    WindowPlan,
)

__all__ = [
    "Aggregated",
    "Contents",
    "Listed",
    "Reduced",
    "Style",
    "WindowCall",
    "WindowPlan",
    "make_window_operator",
]


def make_window_operator(plan: WindowPlan) -> WindowOperator:
    """The operator for one task."""
    return WindowOperator(plan)
