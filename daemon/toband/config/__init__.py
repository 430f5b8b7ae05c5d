"""The daemon's settings.

`settings` has the effective values, `keys` the name and check of each key, `value_checks` and `listeners` the checks,
`defaults` what depends on the host, and `layers` reads the file, the environment and the flags, in that order.
"""

from toband.config.layers import load
from toband.config.server_limits import ServerLimits
from toband.config.settings import Config, ConfigError

__all__ = ["Config", "ConfigError", "ServerLimits", "load"]
