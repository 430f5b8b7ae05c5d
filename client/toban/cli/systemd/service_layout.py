"""Where the files of the service are: of the system's, and of one user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

UNIT: Final = "toband.service"
WEB_UNIT: Final = "toban-web.service"
# Where packages of distributions put units.
_OF_PACKAGES: Final = ("/usr/lib/systemd", "/lib/systemd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLayout:
    """The paths of one service."""

    user: bool
    """Whether it belongs to one user's service manager."""
    prefix: str
    """Holds the installed versions, the link `current` to one of them, and the record of this installation."""
    units: str
    config: str
    state_dir: str
    links: str
    """A directory of PATH, for links to the commands."""
    account: str = ""
    """The user of the daemon; empty: the user who runs this."""
    sysusers: str = ""
    tmpfiles: str = ""

    @property
    def unit(self) -> str:
        return f"{self.units}/{UNIT}"

    @property
    def web_unit(self) -> str:
        return f"{self.units}/{WEB_UNIT}"

    @property
    def hardening(self) -> str:
        return f"{self.unit}.d/hardening.conf"

    @property
    def current(self) -> str:
        return f"{self.prefix}/current"

    @property
    def versions(self) -> str:
        return f"{self.prefix}/versions"

    @property
    def record(self) -> str:
        return f"{self.prefix}/service.json"

    def program(self, name: str) -> str:
        return f"{self.current}/bin/{name}"

    def packaged_unit(self) -> str:
        """The unit that a package of the distribution installed; empty if none did."""
        below = "user" if self.user else "system"
        return next((path for top in _OF_PACKAGES if os.path.exists(path := f"{top}/{below}/{UNIT}")), "")


def system_layout() -> ServiceLayout:
    return ServiceLayout(
        user=False,
        prefix="/opt/toban",
        units="/etc/systemd/system",
        config="/etc/toban/toband.toml",
        state_dir="/var/lib/toban",
        links="/usr/local/bin",
        account="toban",
        sysusers="/etc/sysusers.d/toban.conf",
        tmpfiles="/etc/tmpfiles.d/toban.conf",
    )


def user_layout(environ: Mapping[str, str] = os.environ) -> ServiceLayout:
    home = os.path.expanduser("~")

    def base(variable: str, otherwise: str) -> str:
        named = environ.get(variable, "")
        return named if os.path.isabs(named) else f"{home}/{otherwise}"

    config = base("XDG_CONFIG_HOME", ".config")
    return ServiceLayout(
        user=True,
        prefix=f"{base('XDG_DATA_HOME', '.local/share')}/toban",
        units=f"{config}/systemd/user",
        config=f"{config}/toban/toband.toml",
        state_dir=f"{base('XDG_STATE_HOME', '.local/state')}/toban",
        links=f"{home}/.local/bin",
    )
