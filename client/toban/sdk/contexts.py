"""Contexts: names for daemons with the credentials for them, kept in a file of the user's.

    {"current": "prod", "contexts": {"prod": {"server": "tls://toban.example.org:7233", "ca": "-----BEGIN…",
     "token": "…"}}}

The file is private to its user: contents of certificates, keys and tokens are in it. Keys that this version does not
know stay as they are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from toban.sdk.credentials import ClientCredentials
from toban.sdk.errors import Conflict, InvalidArgument, NotFound

_FILE: Final = "contexts.json"
_CREDENTIALS: Final = ("ca", "token", "certificate", "key")

# Seconds to wait for another program that is changing the file, and between looks at it.
_LOCK_WAIT: Final = 2.0
_LOCK_POLL: Final = 0.02


class Contexts:
    """The contexts of a file: `servers` by name, and the name of the current one, or an empty text."""

    def __init__(self, path: str, data: dict[str, Any]) -> None:
        self.path = path
        self._data = data

    @property
    def servers(self) -> dict[str, str]:
        return {name: entry["server"] for name, entry in self._entries.items()}

    @property
    def current(self) -> str:
        return str(self._data.get("current", ""))

    def server(self, name: str) -> str:
        """The address of a context. Raises NotFound, with similar names."""
        return str(self._entry(name)["server"])

    def credentials(self, name: str) -> ClientCredentials:
        """Raises NotFound."""
        entry = self._entry(name)
        ca, token, certificate, key = (str(entry.get(each, "")) for each in _CREDENTIALS)
        files = [each.encode("utf-8", "replace") for each in (ca, certificate, key)]
        return ClientCredentials(token=token, ca=files[0], certificate=files[1], key=files[2])

    def add(self, name: str, server: str, credentials: Mapping[str, str] | None = None) -> None:
        """`credentials` are texts by `ca`, `token`, `certificate` and `key`.

        Raises InvalidArgument for a name that cannot be used, and Conflict for one that is taken.
        """
        _check_name(name)
        if name in self._entries:
            raise Conflict(f"the context {name} exists already, for {self.server(name)}")
        self._entries[name] = {"server": server, **(credentials or {})}

    def replace(self, name: str, server: str, credentials: Mapping[str, str] | None = None) -> None:
        """Sets the server and these credentials; for another server the earlier ones are forgotten. Raises NotFound."""
        entry = self._entry(name)
        if entry["server"] != server:
            for each in _CREDENTIALS:
                entry.pop(each, None)
        entry.update({"server": server, **(credentials or {})})

    def use(self, name: str) -> None:
        """Makes a context the current one; none if the name is empty. Raises NotFound."""
        if name:
            self._entry(name)
        self._data["current"] = name

    def rename(self, name: str, new: str) -> None:
        """Raises NotFound, InvalidArgument and Conflict."""
        self._entry(name)
        _check_name(new)
        if new in self._entries:
            raise Conflict(f"the context {new} exists already, for {self.server(new)}")
        self._data["contexts"] = {new if key == name else key: entry for key, entry in self._entries.items()}
        if self.current == name:
            self._data["current"] = new

    def remove(self, name: str) -> None:
        """Afterwards there is no current context if it was this one. Raises NotFound."""
        self._entry(name)
        del self._entries[name]
        if self.current == name:
            self._data["current"] = ""

    @property
    def _entries(self) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = self._data.setdefault("contexts", {})
        return entries

    def _entry(self, name: str) -> dict[str, Any]:
        if name in self._entries:
            return self._entries[name]
        from difflib import get_close_matches

        near = get_close_matches(name, self._entries, n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise NotFound(f"no context {name!r} in {self.path}{hint}")


def load(environ: Mapping[str, str] = os.environ) -> Contexts:
    """The user's contexts; none if there is no file. Raises InvalidArgument for a file that cannot be used."""
    path = contexts_file(environ)
    try:
        with open(path, "rb") as file:
            data = json.load(file)
    except FileNotFoundError:
        return Contexts(path, {})
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(f"cannot read the contexts in {path}: {reason}") from None
    return Contexts(path, _checked(path, data))


@contextmanager
def changing(environ: Mapping[str, str] = os.environ) -> Iterator[Contexts]:
    """The user's contexts, to be changed; saved at the end of the block unless it raises.

    The new file is written beside the old one and takes its place, so there is always a whole one. While it is being
    written it excludes other changes. Raises InvalidArgument for a file that cannot be used or written, and Conflict if
    another program does not finish its change.
    """
    path = contexts_file(environ)
    new = f"{path}.new"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        handle = _create(new)
    except OSError as error:
        raise InvalidArgument(f"cannot write the contexts in {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            contexts = load(environ)
            yield contexts
            json.dump(contexts._data, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        os.unlink(new)
        raise InvalidArgument(f"cannot write the contexts in {path}: {error.strerror}") from None
    except BaseException:
        os.unlink(new)
        raise


def contexts_file(environ: Mapping[str, str] = os.environ) -> str:
    """The path of the file, whether it exists or not."""
    if sys.platform == "win32":
        directory = os.path.join(environ.get("APPDATA") or os.path.expanduser(r"~\AppData\Roaming"), "Toban")
    else:
        base = environ.get("XDG_CONFIG_HOME", "")
        # The specification says to ignore a relative path.
        home = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".config")
        directory = os.path.join(home, "toban")
    return os.path.join(directory, _FILE)


def _create(path: str) -> int:
    """Opens a file that does not exist yet, for this user only. Raises OSError and Conflict."""
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if time.monotonic() > deadline:
                raise Conflict(f"another program is changing the contexts; if there is none, delete {path}") from None
        time.sleep(_LOCK_POLL)


def _checked(path: str, data: Any) -> dict[str, Any]:
    """Raises InvalidArgument."""
    entries = data.get("contexts", {}) if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not isinstance(data.get("current", ""), str):
        raise InvalidArgument(f"cannot use the contexts in {path}: expected an object with `current` and `contexts`")
    for name, entry in entries.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("server"), str):
            raise InvalidArgument(f"cannot use the contexts in {path}: {name!r} has no `server`")
    found: dict[str, Any] = data
    return found


def _check_name(name: str) -> None:
    if not name or len(name) > 64 or name.startswith(("-", ".")) or not all(c.isalnum() or c in "-_." for c in name):
        raise InvalidArgument(
            f"cannot name a context {name!r}: use at most 64 letters, digits, '-', '_' and '.', and begin with a "
            "letter, a digit or '_'"
        )
