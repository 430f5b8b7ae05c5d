"""The addresses that the daemon listens on, each with the role of callers without a credential."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toband.config.declaration import NestedError, at
from toband.config.value_checks import check_role, check_text, one_of, shown, unknown_key
from toband.domain.identity import Role

SOCKET_PATH_MOST = 107
DEFAULT_PORT = 7233
"""Of an address with a scheme and without a port; clients have the same."""
_PORT = re.compile("[0-9]{1,9}")
_NAME = re.compile("(?![0-9]+$)[A-Za-z0-9._-]{1,253}")
_ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - only with TLS, and if the configuration says so
_EXPECTED = "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"
_MODE = re.compile("0?[0-7]{3}")
_OWNER = 0o600
_GROUP = 0o660


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """`address` is `unix:///path`, `127.0.0.1:PORT` without TLS, or `tls://HOST:PORT`."""

    address: str
    role: Role | None = None
    """The role of a caller without a credential; None: a credential is required."""
    mode: int = _OWNER
    """Of a socket."""
    group: str = ""
    """The owning group of a socket; empty: that of the daemon."""
    client_certificates: str = ""
    """Of a TLS address: `off` or `required`; empty: as `[tls]` says."""

    @property
    def path(self) -> str:
        """Of a socket; else empty."""
        return self.address.removeprefix("unix://") if self.address.startswith("unix://") else ""

    @property
    def tls(self) -> bool:
        return self.address.startswith("tls://")

    @property
    def host_and_port(self) -> str:
        return self.address.removeprefix("tls://")

    def shown(self) -> Any:
        """As it may be written."""
        values: dict[str, Any] = {"address": self.address, "role": self.role.label if self.role else "none"}
        if self.path:
            values["mode"] = f"{self.mode:04o}"
        if self.group:
            values["group"] = self.group
        if self.client_certificates:
            values["client_certificates"] = self.client_certificates
        return self.address if self == _plain(self.address) else values


def check_listen(value: Any) -> tuple[ListenAddress, ...]:
    items = _separated(value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise ValueError(f"found {shown(value)}, expected addresses such as unix:///path or 127.0.0.1:0")
    return tuple(_item(each, number) for number, each in enumerate(items))


def _item(value: Any, number: int) -> ListenAddress:
    try:
        return _table(value) if isinstance(value, Mapping) else _plain(check_text(value))
    except ValueError as error:
        raise NestedError(str(error), number, *(error.path if isinstance(error, NestedError) else ())) from None


def _separated(text: str) -> list[str]:
    """The addresses of a text, which may end with a comma."""
    return [each for each in text.split(",") if each.strip()]


def _plain(text: str) -> ListenAddress:
    """A socket is its owner's; a port is open to all users who can connect, and so requires a credential."""
    address = _address(text.strip())
    return ListenAddress(address=address, role=Role.ADMIN if address.startswith("unix://") else None)


def _table(table: Mapping[str, Any]) -> ListenAddress:
    unknown = set(table) - {*_FIELDS, "address"}
    if unknown:
        raise NestedError(unknown_key(min(unknown), {*_FIELDS, "address"}), min(unknown))
    if "address" not in table:
        raise ValueError(f"found {shown(dict(table))}, expected an `address`")
    address = _address(check_text(table["address"]).strip())
    values: dict[str, Any] = {}
    for key, check in _FIELDS.items():
        if key in table:
            values[key] = at(f"{address}: {key}", key)(check, table[key])
    if address.startswith("unix://"):
        values.setdefault("role", Role.ADMIN)
        values.setdefault("mode", _OWNER if values["role"] is Role.ADMIN else _GROUP)
    elif "mode" in values or "group" in values:
        raise ValueError(f"{address}: only a socket (unix:///path) has a mode and a group")
    if address.startswith("tls://"):
        if values.get("role") is not None:
            raise ValueError(f"{address}: role: an address with TLS always requires a credential; omit the role")
    elif "client_certificates" in values:
        raise ValueError(f"{address}: client_certificates: only an address with TLS (tls://HOST:PORT) has them")
    return ListenAddress(address=address, **values)


def _mode(value: Any) -> int:
    if isinstance(value, str) and _MODE.fullmatch(value):
        return int(value, 8)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value
    raise ValueError(f'found {shown(value)}, expected a mode such as "0660"')


def _group(value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else check_text(value)
    if not text or "\0" in text:
        raise ValueError(f"found {shown(value)}, expected the name of a group")
    return text


def check_client_certificates(value: Any) -> str:
    """gRPC in Python cannot leave the choice to the client."""
    if value == "optional":
        raise ValueError(
            "a TLS address cannot leave certificates to the client; listen on a second address with "
            'client_certificates = "required"'
        )
    return one_of(("off", "required"))(value)


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "role": check_role(none=True),
    "mode": _mode,
    "group": _group,
    "client_certificates": check_client_certificates,
}


def _address(text: str) -> str:
    """In its one spelling, of the many that are in use. Raises ValueError."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower() if separator else ""
    if text.startswith("/"):
        return _socket(text, text)
    if text[:5].lower() == "unix:":
        return _socket(text, rest if separator else text[5:])
    if scheme not in ("", "tls", "tcp"):
        hint = f"; with TLS it is tls://{rest}" if scheme in ("https", "grpcs") else ""
        raise ValueError(f"found {shown(text)}, {_EXPECTED}{hint}")
    host, port = _host_and_port(text, rest.removesuffix("/") if separator else text, with_scheme=bool(separator))
    if scheme == "tls":
        return f"tls://{host}:{port}"
    if not _is_loopback(host):
        raise ValueError(
            f"refusing to listen on {text!r}: without TLS only 127.0.0.1, localhost or [::1] are allowed; "
            f"use tls://{host}:{port}"
        )
    return f"{host}:{port}"


def _host_and_port(text: str, rest: str, *, with_scheme: bool) -> tuple[str, int]:
    """The port may be left out after a scheme. No host, or `*`, means all interfaces. Raises ValueError."""
    if with_scheme and rest and (":" not in rest or rest.endswith("]")):
        host, port = rest, str(DEFAULT_PORT)
    else:
        host, colon, port = rest.rpartition(":")
        if not colon or not _PORT.fullmatch(port):
            raise ValueError(f"found {shown(text)}, {_EXPECTED}")
    if int(port) > 65535:
        raise ValueError(f"found {shown(text)}: a port is at most 65535")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"found {shown(text)}: an IPv6 address is written in brackets, as in tls://[::1]:{port}")
    host = _ALL_INTERFACES if host in ("", "*") else host.lower()
    bracketed = host.startswith("[") and host.endswith("]")
    if not (_ip(host[1:-1]) if bracketed else _ip(host) or _NAME.fullmatch(host)):
        raise ValueError(f"found {shown(text)}, {_EXPECTED}")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    address = _ip(host.strip("[]"))
    return host == "localhost" or (address is not None and address.is_loopback)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _socket(text: str, path: str) -> str:
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"found {shown(text)}, expected the absolute path of a socket as in unix:///run/toban.sock")
    if "," in path:
        raise ValueError(
            f"the socket path {path} contains a comma, which separates addresses; choose another with `listen`"
        )
    if len(os.fsencode(path)) > SOCKET_PATH_MOST:
        raise ValueError(
            f"the socket path {path} is {len(os.fsencode(path))} bytes long, the system allows at most "
            f"{SOCKET_PATH_MOST}; choose a shorter one with `listen`"
        )
    return f"unix://{path}"
