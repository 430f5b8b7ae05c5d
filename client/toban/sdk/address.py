"""Finds the daemon: parses an address, and searches the usual locations if none is given."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from toban.sdk.errors import InvalidArgument, Unreachable

SOCKET_NAME: Final = "toban.sock"
ADMIN_SOCKET_NAME: Final = "admin.sock"
ADDRESS_FILE: Final = "toband.json"
# Where sockets have no owners: a token that only administrators and the daemon can read, beside ADDRESS_FILE.
TOKEN_FILE: Final = "admin.token"  # noqa: S105 - a name
# Used if an address names no port.
DEFAULT_PORT: Final = 7233
SYSTEM_DIRECTORIES: Final = ("/run/toban", "/var/lib/toban")

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./~-]*")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_EXPECTED: Final = "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"

# The maximum length of sun_path, with the final zero: 108 bytes on Linux, 104 on macOS and the BSDs.
_LONGEST_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One address at which a daemon may listen."""

    # As written by the user.
    text: str
    # As dialled by gRPC.
    target: str
    # Path of the socket; empty for TCP.
    path: str = ""
    # Of TCP; empty for a socket.
    host: str = ""
    port: int = 0
    tls: bool = False

    @property
    def local(self) -> bool:
        """Whether the daemon is certainly on this machine and sees the same files."""
        return bool(self.path)


def parse(text: str) -> Address:
    """Parses `unix:///path`, a bare path, `tls://host:port`, `tcp://127.0.0.1:port` or `127.0.0.1:port`.

    Raises InvalidArgument, also for TCP without TLS to another machine.
    """
    if text.startswith("unix:"):
        rest = text.removeprefix("unix:")
        return _unix(_unquoted(rest.removeprefix("//") if rest.startswith("///") else rest))
    if os.path.isabs(text):
        return _unix(text)
    scheme, separator, rest = text.partition("://")
    if separator and scheme not in ("tls", "tcp"):
        raise InvalidArgument(f"cannot use the address {text!r}: {_EXPECTED}")
    host, port = _host_and_port(text, rest if separator else text, with_scheme=bool(separator))
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if scheme == "tls" and separator:
        return Address(text=f"tls://{target}", target=target, host=host, port=port, tls=True)
    if not _is_loopback(host):
        raise InvalidArgument(
            f"cannot use the address {text!r}: without TLS only a daemon on this machine may be reached; "
            f"use tls://{target}"
        )
    return Address(text=target, target=target, host=host, port=port)


def _host_and_port(text: str, rest: str, *, with_scheme: bool) -> tuple[str, int]:
    """Raises InvalidArgument. The port may be left out after a scheme."""
    rest = rest.removesuffix("/") if with_scheme else rest
    if with_scheme and (rest.endswith("]") or ":" not in rest):
        host, port = rest, str(DEFAULT_PORT)
    else:
        host, _, port = rest.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    usable = _is_ip(host) if bracketed else _HOST.fullmatch(host)
    if not usable or not port.isascii() or not port.isdigit():
        raise InvalidArgument(f"cannot use the address {text!r}: {_EXPECTED}")
    if not 0 < int(port) < 65536:
        raise InvalidArgument(f"cannot use the address {text!r}: {port} is not a port")
    return host, int(port)


def find_local(environ: Mapping[str, str] = os.environ) -> tuple[Address, str]:
    """The daemon of this machine, and the file with a token for it, or an empty text. Raises Unreachable, naming the
    locations that were searched.

    If `TOBAN_STATE_DIR` is set, only the daemon of that directory is considered. The admin's socket of a daemon is
    preferred if it is open to this user.
    """
    state_dir = environ.get("TOBAN_STATE_DIR")
    directories = [state_dir] if state_dir else [*SYSTEM_DIRECTORIES, *_user_directories(environ)]
    sockets = [os.path.join(directory, name) for directory in directories for name in (ADMIN_SOCKET_NAME, SOCKET_NAME)]
    existing = [path for path in sockets if os.path.exists(path)]
    # Prefer an accessible daemon: a user who runs their own daemon may have no access to the system's.
    open_ones = [path for path in existing if os.access(path, os.W_OK)]
    for path in open_ones or [path for path in existing if path.endswith(SOCKET_NAME)]:
        return _unix(path), ""
    for directory in directories:
        if (recorded := _recorded(directory)) is not None:
            return recorded
    raise Unreachable(f"no daemon found on this machine (looked for {', '.join(sockets[1::2])})")


def _unix(path: str) -> Address:
    if not path:
        raise InvalidArgument("cannot use the address 'unix:': the path of the socket is missing")
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise InvalidArgument(
            f"cannot use the socket {path}: its path is longer than {_LONGEST_SOCKET_PATH} bytes, "
            "which the system does not allow"
        )
    return Address(
        # Readable, and parses to the same address.
        text=f"unix://{path.replace('%', '%25')}",
        target=f"unix://{_quoted(path)}",
        path=path,
    )


def _quoted(path: str) -> str:
    if _PLAIN.fullmatch(path):
        return path
    from urllib.parse import quote  # slow to load

    return quote(path)


def _unquoted(path: str) -> str:
    if "%" not in path:
        return path
    from urllib.parse import unquote

    return unquote(path)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    import ipaddress  # rarely needed, and slow to load

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_ip(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _user_directories(environ: Mapping[str, str]) -> Iterator[str]:
    if sys.platform == "win32":
        yield os.path.join(environ.get("PROGRAMDATA", r"C:\ProgramData"), "Toban")
        return
    if state_home := environ.get("XDG_STATE_HOME"):
        yield os.path.join(state_home, "toban")
        return
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        yield os.path.join(home, ".local", "state", "toban")


def _recorded(directory: str) -> tuple[Address, str] | None:
    """The address on this machine that the daemon wrote to its state directory, and the file with a token for it.

    None if there is no usable one.
    """
    try:
        with open(os.path.join(directory, ADDRESS_FILE), encoding="utf-8") as file:
            listed = [str(each) for each in json.load(file)["listen"]]
        local = next(address for address in map(parse, listed) if not address.tls)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, InvalidArgument, StopIteration):
        return None
    token_file = os.path.join(directory, TOKEN_FILE)
    return local, token_file if os.access(token_file, os.R_OK) else ""
