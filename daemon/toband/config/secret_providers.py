"""The settings of external stores of secrets: tables `[secrets.providers.NAME]`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toban.definition import format_duration
from toban.definition.scalars.names import check_name
from toband.config.declaration import NestedError, at
from toband.config.value_checks import check_duration, check_text, shown, unknown_key

CREDENTIAL = "credential"
"""The provider of the credentials of the daemon's systemd unit, which needs no settings."""
DEFAULT_TIMEOUT = 10.0
_KEYS = ("command", "directory", "env", "timeout", "cache")
_EXAMPLE = '["vault", "kv", "get", "-field=value", "{key}"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """Either a command or a directory."""

    command: tuple[str, ...] = ()
    directory: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    cache: float = 0.0
    """Seconds for which a value is kept."""

    @property
    def shown(self) -> dict[str, Any]:
        """Without the values of variables."""
        if self.directory:
            return {"directory": self.directory}
        return {
            "command": list(self.command),
            "env": dict.fromkeys(sorted(self.env), "***"),
            "timeout": format_duration(self.timeout),
            "cache": format_duration(self.cache),
        }


def check_providers(value: Any) -> Mapping[str, ProviderSettings]:
    if not isinstance(value, dict):
        raise ValueError(f"found {shown(value)}, expected tables [secrets.providers.NAME] in the configuration file")
    return {name: at(name, name)(_provider, name, given) for name, given in value.items()}


def _provider(name: str, given: Any) -> ProviderSettings:
    check_name(name)
    if name == CREDENTIAL:
        raise ValueError("the name stands for the credentials of the systemd unit; use another")
    if not isinstance(given, dict):
        raise ValueError(f"found {shown(given)}, expected a table")
    return _settings(given)


def _settings(given: Mapping[str, Any]) -> ProviderSettings:
    for key in given:
        if key not in _KEYS:
            raise NestedError(unknown_key(key, _KEYS), key)
    if ("command" in given) is ("directory" in given):
        raise ValueError("expected either a command or a directory")
    if "directory" in given:
        directory = os.path.expanduser(check_text(given["directory"]))
        if not os.path.isabs(directory):
            raise ValueError(f"directory: expected an absolute path, found {shown(directory)}")
        if len(given) > 1:
            raise ValueError("a directory has no further keys")
        return ProviderSettings(directory=directory)
    return ProviderSettings(
        command=_command(given["command"]),
        env=_env(given.get("env", {})),
        timeout=check_duration(given["timeout"]) if "timeout" in given else DEFAULT_TIMEOUT,
        cache=check_duration(given["cache"]) if "cache" in given else 0.0,
    )


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
        raise ValueError(f"command: found {shown(value)}, expected words such as {_EXAMPLE}")
    if any("\0" in word for word in value):
        raise ValueError("command: a word contains a NUL character")
    if not any(placeholder in word for word in value[1:] for placeholder in ("{key}", "{name}")):
        raise ValueError(f"command: no word has {{key}}, which stands for the key of the secret: {_EXAMPLE}")
    return tuple(value)


def _env(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) and "\0" not in text for text in value.values()):
        raise ValueError("env: expected a table of variables with texts")
    if any(not name or "=" in name or "\0" in name for name in value):
        raise ValueError("env: expected names of variables")
    return value
