"""Figures of functions, under the names of ``pyflink.metrics``. Re-exports only."""

from headgate.core.chain.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
