"""The file with the secrets key: one key per line, in base64, the one to encrypt with first."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Sequence

from toband import failpoints
from toband.ports import SecretKey, SecretKeyError

if sys.platform == "win32":
    from toband.secret_backends.windows_protection import protect, unprotect
else:

    def protect(data: bytes) -> bytes:
        return data

    def unprotect(data: bytes) -> bytes:
        return data


NAME = "secrets.key"
CREDENTIAL = "toban-secrets-key"
_KEY_BYTES = 32
_ID_CHARS = 16
_LARGEST = 64 * 1024
_HEADER = (
    "# The keys of Toban's secrets. This file and the database together give away the secrets. Keep a copy elsewhere.\n"
)


def key_of(data: bytes) -> SecretKey:
    digest = hashlib.sha256(b"toban secrets key\0" + data).hexdigest()
    return SecretKey(id=digest[:_ID_CHARS], key=data)


class KeyFile:
    """`toband.ports.SecretKeyFile`.

    On POSIX only its owner may read the file; on Windows DPAPI encrypts it for the user of the daemon.
    """

    def __init__(self, path: str, *, writable: bool = True) -> None:
        """A file that is not `writable` belongs to the service manager, which decides about its mode."""
        self.place = path
        self.writable = writable

    def read(self) -> Sequence[SecretKey]:
        try:
            with open(self.place, "rb") as file:
                if self.writable:
                    self._check_mode(os.fstat(file.fileno()))
                data = file.read(_LARGEST)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise SecretKeyError(f"cannot read {self.place}: {error.strerror}") from None
        return tuple(self._keys(data))

    def create(self) -> SecretKey:
        key = key_of(os.urandom(_KEY_BYTES))
        self._write([key], replace=False)
        return key

    def prepend(self, keys: Sequence[SecretKey]) -> SecretKey:
        key = key_of(os.urandom(_KEY_BYTES))
        self._write([key, *keys])
        return key

    def keep(self, keys: Sequence[SecretKey]) -> None:
        self._write(keys)

    def _check_mode(self, facts: os.stat_result) -> None:
        if sys.platform != "win32" and stat.S_IMODE(facts.st_mode) & 0o077:
            raise SecretKeyError(
                f"cannot use {self.place}: other users may read it; if none has, run 'chmod 600 {self.place}'"
            )

    def _keys(self, data: bytes) -> Sequence[SecretKey]:
        try:
            lines = unprotect(data).decode().splitlines() if self.writable else data.decode().splitlines()
            keys = [base64.b64decode(line, validate=True) for line in map(str.strip, lines) if line and line[0] != "#"]
        except (OSError, UnicodeDecodeError, binascii.Error):
            keys = [b""]
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise SecretKeyError(
                f"cannot use {self.place}: expected {_KEY_BYTES} bytes in base64 on each line, as "
                "'openssl rand -base64 32' writes them; restore the file"
            )
        return [key_of(key) for key in keys]

    def _write(self, keys: Sequence[SecretKey], *, replace: bool = True) -> None:
        text = _HEADER + "".join(f"{base64.b64encode(key.key).decode()}\n" for key in keys)
        new = f"{self.place}.new"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            with open(new, "xb", opener=_private) as file:
                file.write(protect(text.encode()))
                file.flush()
                os.fsync(file.fileno())
            failpoints.hit("secrets.key_written")
            if replace:
                os.replace(new, self.place)
            else:
                # Unlike a rename, it never replaces a file.
                os.link(new, self.place)
                os.unlink(new)
            self._sync_directory()
        except OSError as error:
            raise SecretKeyError(f"cannot write {self.place}: {error.strerror}") from None

    def _sync_directory(self) -> None:
        if sys.platform == "win32":
            return
        directory = os.open(os.path.dirname(self.place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def find_key_file(configured: str, credentials: str, state_dir: str) -> KeyFile:
    """The file of the configuration, else the credential of the systemd unit if it has one, else one in the state
    directory.
    """
    if configured:
        return KeyFile(configured)
    if credentials and os.path.exists(path := os.path.join(credentials, CREDENTIAL)):
        return KeyFile(path, writable=False)
    return KeyFile(os.path.join(state_dir, NAME))
