"""The daemon's settings.

`keys` declares each setting, `value_checks`, `listeners` and others are their checks, `settings` has the effective
values, `defaults` what depends on the host, `layers` reads the file, the environment and the flags, in that order, and
`comparison` compares what it read with what is in effect.
"""

from toband.config.declaration import ConfigError
from toband.config.layers import load
from toband.config.server_limits import ServerLimits
from toband.config.settings import Config

__all__ = ["Config", "ConfigError", "ServerLimits", "load"]
