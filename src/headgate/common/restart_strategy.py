"""Restart strategies, where PyFlink has them."""

from headgate.api.restarts import RestartStrategies, RestartStrategyConfiguration

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]
