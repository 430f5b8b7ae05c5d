"""Limits of clients: of their connections, calls and failed logins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition import format_duration, format_size
from toban.limits import MAX_MESSAGE_BYTES
from toband.config.declaration import Setting
from toband.config.value_checks import check_count, check_duration, check_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Times in seconds."""

    message_size: int = MAX_MESSAGE_BYTES
    """Bytes of a request."""
    connections: int = 1000
    """Per address that the daemon listens on."""
    connection_idle: float = 600.0
    """How long a connection without calls stays open."""
    handshake_time: float = 10.0
    """For TLS, and until the client has introduced itself."""
    keepalive: float = 60.0
    """How often a silent connection is checked."""
    client_time: float = 30.0
    """How long a call may wait for its client: to send the request, and to take the answer."""
    calls_per_identity: int = 750
    """Of one kind, waiting ones included."""
    streams_per_identity: int = 500
    request_rate: int = 1000
    """Calls per second of one identity."""
    request_burst: int = 4000
    """Calls of one identity at once, after a pause."""
    failed_logins: int = 10
    """Invalid credentials of one source before it has to wait."""

    def shown(self) -> Mapping[str, Any]:
        """By key, as people write them."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {f"{PREFIX}{name}": _SHOWN.get(_FIELDS[name], _as_it_is)(value) for name, value in values.items()}


PREFIX = "limits."


def _as_it_is(value: Any) -> Any:
    return value


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "message_size": check_size,
    "connections": check_count,
    "connection_idle": check_duration,
    "handshake_time": check_duration,
    "keepalive": check_duration,
    "client_time": check_duration,
    "calls_per_identity": check_count,
    "streams_per_identity": check_count,
    "request_rate": check_count,
    "request_burst": check_count,
    "failed_logins": check_count,
}
_OF_GRPC = frozenset({"message_size", "connections", "connection_idle", "handshake_time", "keepalive"})
"""Options that gRPC takes only when it opens an address."""
_SHOWN: Mapping[Callable[[Any], Any], Callable[[Any], Any]] = {
    check_size: format_size,
    check_duration: format_duration,
}
_DEFAULTS = ServerLimits()
LIMIT_SETTINGS: Mapping[str, Setting] = {
    f"{PREFIX}{name}": Setting(check, getattr(_DEFAULTS, name), live=name not in _OF_GRPC)
    for name, check in _FIELDS.items()
}


def server_limits(values: Mapping[str, Any]) -> ServerLimits:
    """From the checked values of all keys."""
    return ServerLimits(**{name: values[f"{PREFIX}{name}"] for name in _FIELDS})
