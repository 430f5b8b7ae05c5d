"""Credentials: the token and the certificates with which a client identifies itself and checks the daemon.

Their contents appear in no message and no representation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toban.sdk.errors import InvalidArgument

Pem = str | os.PathLike[str] | bytes
"""The path of a PEM file, or its content."""

# The variables of the environment, by field.
VARIABLES: Final = {
    "token": "TOBAN_TOKEN",
    "token_file": "TOBAN_TOKEN_FILE",
    "ca": "TOBAN_CA",
    "certificate": "TOBAN_CERT",
    "key": "TOBAN_KEY",
}

# A file of certificates is far smaller. Stops at a device that never ends.
_LARGEST_FILE: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """What a caller gives. `ca` are the certificates that the daemon's must be signed by."""

    token: str = ""
    # A file with a token, which may be replaced at any time.
    token_file: str = ""
    ca: Pem = b""
    certificate: Pem = b""
    key: Pem = b""

    def __repr__(self) -> str:
        return f"ClientCredentials({', '.join(name for name in VARIABLES if getattr(self, name))})"

    @property
    def has_tls(self) -> bool:
        """Whether it has something that only TLS uses."""
        return bool(self.ca or self.certificate or self.key)

    def over(self, other: ClientCredentials) -> ClientCredentials:
        """These, completed by the others. A token and a file with one replace each other, a certificate has its key."""
        token = self if self.token or self.token_file else other
        pair = self if self.certificate or self.key else other
        return ClientCredentials(
            token=token.token,
            token_file=token.token_file,
            ca=self.ca or other.ca,
            certificate=pair.certificate,
            key=pair.key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Contents of PEM files; empty if there is none."""

    ca: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return "TlsFiles()"


def of_environment(environ: Mapping[str, str] = os.environ) -> ClientCredentials:
    """Raises InvalidArgument if there are two tokens."""
    found = ClientCredentials(**{field: environ.get(variable, "") for field, variable in VARIABLES.items()})
    if found.token and found.token_file:
        raise InvalidArgument("cannot choose a token: both TOBAN_TOKEN and TOBAN_TOKEN_FILE are set")
    return found


def read_tls_files(given: ClientCredentials) -> TlsFiles:
    """Raises InvalidArgument for a file that cannot be used."""
    if bool(given.certificate) != bool(given.key):
        missing, there = ("key", "certificate") if given.certificate else ("certificate", "key")
        raise InvalidArgument(f"cannot use the client {there}: its {missing} is missing")
    return TlsFiles(
        ca=read_pem(given.ca, "CA certificates"),
        certificate=read_pem(given.certificate, "client certificate"),
        key=read_pem(given.key, "client key"),
    )


def read_pem(given: Pem, what: str) -> bytes:
    """The content of a PEM file; empty if none is given. Raises InvalidArgument."""
    if not given:
        return b""
    content = given if isinstance(given, bytes) else _read(os.fspath(given), what)
    kind = b"PRIVATE KEY" if what.endswith("key") else b"CERTIFICATE"
    if b"-----BEGIN " not in content or kind + b"-----" not in content:
        place = "" if isinstance(given, bytes) else f" in {os.fspath(given)}"
        raise InvalidArgument(f"cannot use the {what}{place}: expected PEM with a {kind.decode()}")
    return content


def read_token_file(path: str) -> str:
    """Raises InvalidArgument."""
    return checked_token(_read(path, "token").decode("utf-8", "replace"), f"in {path}")


def checked_token(text: str, place: str) -> str:
    """The token without the blanks around it. Raises InvalidArgument, without the text."""
    token = text.strip()
    if not token:
        raise InvalidArgument(f"cannot use the token {place}: it is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument(f"cannot use the token {place}: expected one line without blanks")
    return token


def _read(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(f"cannot read the {what} in {path}: {reason}") from None
    if len(content) > _LARGEST_FILE:
        raise InvalidArgument(f"cannot read the {what} in {path}: the file is too large")
    return content
