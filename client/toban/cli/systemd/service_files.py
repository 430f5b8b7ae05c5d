"""The shipped files of the service, filled in for this machine. `service-files/` has the only copy of each."""

from __future__ import annotations

import os
import re
from typing import Final

import toban
from toban.cli.systemd.service_layout import ServiceLayout

# The version of systemd that knows DelegateSubgroup.
_SUBGROUP: Final = 254
_WEB: Final = "web --no-link --no-build --listen 127.0.0.1:7280"
_EXEC_START: Final = re.compile(r"^ExecStart=.*$", re.MULTILINE)
# What the configuration of the system sets, and that of a user must not: directory, sockets, another user for steps.
_OF_THE_SYSTEM: Final = re.compile(r"^(?:state_dir|step_user) = .*$|^listen = \[$.*?^\]$", re.MULTILINE | re.DOTALL)


class ServiceFiles:
    """Those of one installed package. Raises FileNotFoundError if it has none, as packages of older releases."""

    def __init__(self, package: str = "") -> None:
        self._package = package or os.path.dirname(os.path.abspath(toban.__file__))

    def unit(self, layout: ServiceLayout, systemd_version: int) -> str:
        text = self._shipped("systemd/user/toband.service" if layout.user else "systemd/toband.service")
        start = f"ExecStart={_word(layout.program('toband'))} --config {_word(layout.config)}"
        text = _EXEC_START.sub(lambda _: start, text)
        if systemd_version >= _SUBGROUP:
            text = text.replace("\n#DelegateSubgroup=", "\nDelegateSubgroup=")
        return text

    def web_unit(self, layout: ServiceLayout) -> str:
        text = self._shipped("systemd/user/toban-web.service" if layout.user else "systemd/toban-web.service")
        socket = f"unix://{layout.state_dir}/toban.sock" if layout.user else "unix:///run/toban/steps.sock"
        start = f"ExecStart={_word(layout.program('toban'))} --server {_word(socket)} {_WEB}"
        return _EXEC_START.sub(lambda _: start, text)

    def hardening(self) -> str:
        return self._shipped("systemd/toband.service.d/hardening.conf")

    def sysusers(self) -> str:
        return self._shipped("systemd/toban.sysusers")

    def tmpfiles(self) -> str:
        return self._shipped("systemd/toban.tmpfiles")

    def config(self, layout: ServiceLayout) -> str:
        text = self._shipped("toband.toml").replace("/etc/toban/toband.toml", layout.config, 1)
        if layout.user:
            text = _OF_THE_SYSTEM.sub(lambda match: "\n".join(f"# {line}" for line in match[0].splitlines()), text)
        return text

    def _shipped(self, name: str) -> str:
        # In a working copy they are beside the package.
        for directory in (f"{self._package}/service_files", f"{self._package}/../../service-files"):
            if os.path.isfile(path := f"{directory}/{name}"):
                with open(path, encoding="utf-8") as file:
                    return file.read()
        raise FileNotFoundError(f"service_files/{name} is not in {self._package}")


def _word(text: str) -> str:
    """One word of a command in a unit."""
    text = text.replace("%", "%%")
    if re.fullmatch(r"[A-Za-z0-9_./@:+%-]+", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"'
