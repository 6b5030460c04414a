"""Restart strategies, where PyFlink has them."""

from headgate.api.settings.restarts import RestartStrategies, RestartStrategyConfiguration

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]
