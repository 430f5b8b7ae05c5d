"""A directory with one secret per file, such as the credentials of a systemd unit."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
from collections.abc import Collection

from toban.limits import MAX_SECRET_BYTES
from toband.ports import ProviderError

_FILE_NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{0,199}")


class SecretDirectory:
    """`toband.ports.SecretProvider`. A key is the name of a file; one newline at its end is not part of the value."""

    def __init__(self, path: str, *, hidden: Collection[str] = (), private: bool = True) -> None:
        """`hidden` files are no secrets. In a `private` directory no file may be readable by other users."""
        self._path = path
        self._hidden = hidden
        self._private = private

    def check_key(self, key: str) -> None:
        if not _FILE_NAME.fullmatch(key) or key in self._hidden:
            raise ValueError(f"expected the name of a file in {self._path or 'the directory'}, found {key!r:.200}")

    async def fetch(self, name: str, key: str) -> str:
        return await asyncio.to_thread(self._read, key)

    def _read(self, key: str) -> str:
        if not self._path:
            raise ProviderError(
                "the daemon has no credentials: add LoadCredential= or SetCredentialEncrypted= to its unit"
            )
        try:
            self.check_key(key)
        except ValueError as error:
            raise ProviderError(str(error)) from None
        path = os.path.join(self._path, key)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            with open(os.open(path, flags), "rb") as file:
                facts = os.fstat(file.fileno())
                if not stat.S_ISREG(facts.st_mode):
                    raise ProviderError(f"{path} is not a regular file")
                if self._private and sys.platform != "win32" and stat.S_IMODE(facts.st_mode) & 0o077:
                    raise ProviderError(f"other users may read {path}: run 'chmod 600 {path}'")
                data = file.read(MAX_SECRET_BYTES + 2)
        except OSError as error:
            raise ProviderError(f"cannot read {path}: {error.strerror}") from None
        return value_of(data, path)


def value_of(data: bytes, source: str) -> str:
    """The value in the output of a store. Raises ProviderError."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ProviderError(f"{source} gave data that is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")
