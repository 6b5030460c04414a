"""Options of a configuration, where PyFlink has them."""

from headgate.api.settings.configuration import ConfigOption, ConfigOptions

__all__ = ["ConfigOption", "ConfigOptions"]
