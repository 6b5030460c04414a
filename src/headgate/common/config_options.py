"""Options of a configuration, where PyFlink has them."""

from headgate.api.config_options import ConfigOption, ConfigOptions

__all__ = ["ConfigOption", "ConfigOptions"]
