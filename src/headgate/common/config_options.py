"""Options of a configuration, where PyFlink has them."""

from headgate.api.settings.config_options import ConfigOption, ConfigOptions

__all__ = ["ConfigOption", "ConfigOptions"]
