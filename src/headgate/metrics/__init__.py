"""Figures of functions, under the names of ``pyflink.metrics``. Re-exports only."""

from headgate.functions.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
