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
ADDRESS_FILE: Final = "toband.json"
SYSTEM_DIRECTORIES: Final = ("/run/toban", "/var/lib/toban")

# The maximum length of sun_path, with the final zero: 108 bytes on Linux, 104 on macOS and the BSDs.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./~-]*")
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

    @property
    def local(self) -> bool:
        """Whether the daemon is certainly on this machine and sees the same files."""
        return bool(self.path)


def resolve(server: str | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ) -> Address:
    """The address to use: what the caller gives, else what the environment gives, else a local daemon's.

    That is the first of `server`, the context `context`, `TOBAN_SERVER`, the context of `TOBAN_CONTEXT`, and the
    current context of the user. Raises InvalidArgument for an unusable address, NotFound for an unknown context, and
    Unreachable if none is given and no local daemon is found.
    """
    given = server or (
        _of_context(context, environ)
        if context
        else environ.get("TOBAN_SERVER") or _of_context(environ.get("TOBAN_CONTEXT", ""), environ)
    )
    return parse(given) if given else find_local(environ)


def _of_context(chosen: str, environ: Mapping[str, str]) -> str:
    """The address of the context, or of the current one; empty if there is none."""
    from toban.sdk import contexts  # not needed with an address

    if not chosen and not os.path.exists(contexts.contexts_file(environ)):
        return ""
    known = contexts.load(environ)
    chosen = chosen or known.current
    return known.server(chosen) if chosen else ""


def parse(text: str) -> Address:
    """Parses `unix:///path`, a bare path or `host:port`. Raises InvalidArgument."""
    if text.startswith("unix:"):
        rest = text.removeprefix("unix:")
        return _unix(_unquoted(rest.removeprefix("//") if rest.startswith("///") else rest))
    if os.path.isabs(text):
        return _unix(text)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or "/" in host or not port.isascii() or not port.isdigit():
        raise InvalidArgument(f"cannot use the address {text!r}: expected unix:///path or host:port")
    if not 0 < int(port) < 65536:
        raise InvalidArgument(f"cannot use the address {text!r}: {port} is not a port")
    if not _is_loopback(host):
        raise InvalidArgument(
            f"cannot use the address {text!r}: TLS is not available yet, and without it only a daemon on "
            "this machine may be reached (unix:///path, 127.0.0.1:port)"
        )
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Address(text=target, target=target)


def find_local(environ: Mapping[str, str] = os.environ) -> Address:
    """The daemon of this machine. Raises Unreachable, naming the locations that were searched.

    If `TOBAN_STATE_DIR` is set, only the daemon of that directory is considered.
    """
    state_dir = environ.get("TOBAN_STATE_DIR")
    directories = [state_dir] if state_dir else [*SYSTEM_DIRECTORIES, *_user_directories(environ)]
    sockets = [os.path.join(directory, SOCKET_NAME) for directory in directories]
    existing = [path for path in sockets if os.path.exists(path)]
    # Prefer an accessible daemon: a user who runs their own daemon may have no access to the system's.
    for path in [*(path for path in existing if os.access(path, os.W_OK)), *existing]:
        return _unix(path)
    for directory in directories:
        if (recorded := _recorded(directory)) is not None:
            return recorded
    raise Unreachable(f"no daemon found on this machine (looked for {', '.join(sockets)})")


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


def _recorded(directory: str) -> Address | None:
    """The address that the daemon wrote to its state directory; None if there is no usable one."""
    try:
        with open(os.path.join(directory, ADDRESS_FILE), encoding="utf-8") as file:
            return parse(str(json.load(file)["listen"][0]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError, InvalidArgument):
        return None
