"""The certificate, key and client authority of TLS: checked at the start, and read again when the files change."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from toband.api.unix_socket import ListenError
from toband.config.settings import TlsSettings

_LARGEST = 1024 * 1024
_Signature = tuple[tuple[int, int, int], ...]
T = TypeVar("T")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    certificate: bytes
    key: bytes
    client_ca: bytes | None


class ServerCertificate:
    def __init__(self, settings: TlsSettings, *, require_client: bool) -> None:
        self._settings = settings
        self._require_client = require_client
        self._known: _Signature = ()
        self._reported: _Signature = ()

    def credentials(self) -> grpc.ServerCredentials:
        """Raises ListenError, if the files cannot be used."""
        signature = self._signature()
        initial = self._load()
        self._known = signature
        dynamic: Callable[..., grpc.ServerCredentials] = grpc.dynamic_ssl_server_credentials
        return dynamic(initial, self._changed, require_client_authentication=self._require_client)

    def _changed(self) -> Any:
        """The new configuration for a connection that is being opened; None if nothing changed.

        gRPC calls it before each handshake, in a thread of its own. Connections that are open stay as they are.
        """
        signature = self._signature()
        if signature == self._known:
            return None
        try:
            loaded = self._load()
        except ListenError as error:
            # While the files are being replaced, or are wrong, the old ones stay in use.
            if signature != self._reported:
                self._reported = signature
                log.error("cannot use the changed files of TLS", action="tls_reload_failed", error=str(error))
            return None
        self._known = signature
        log.info("read the files of TLS again", action="tls_reloaded", certificate=self._settings.certificate)
        return loaded

    def _load(self) -> Any:
        """Raises ListenError."""
        made = _read(self._settings, require_client=self._require_client)
        return grpc.ssl_server_certificate_configuration([(made.key, made.certificate)], made.client_ca)

    def _signature(self) -> _Signature:
        paths = (self._settings.certificate, self._settings.key, self._settings.client_ca)
        return tuple(_identity(path) for path in paths if path)


def _read(settings: TlsSettings, *, require_client: bool) -> _Material:
    """Raises ListenError."""
    if not settings.certificate or not settings.key:
        raise ListenError("cannot listen with TLS: set `certificate` and `key` in [tls]")
    if require_client and not settings.client_ca:
        raise ListenError("cannot require client certificates: set `client_ca` in [tls]")
    certificate = _text(settings.certificate, "tls.certificate")
    key = _text(settings.key, "tls.key")
    chain = _parsed(settings.certificate, "tls.certificate", x509.load_pem_x509_certificates, certificate)
    _check_time(settings.certificate, chain[0])
    private = _parsed(settings.key, "tls.key", _private_key, key)
    if _public(private.public_key()) != _public(chain[0].public_key()):
        raise ListenError(f"tls.key: {settings.key} does not belong to the certificate {settings.certificate}")
    client_ca = None
    if settings.client_ca:
        client_ca = _text(settings.client_ca, "tls.client_ca")
        _parsed(settings.client_ca, "tls.client_ca", x509.load_pem_x509_certificates, client_ca)
    return _Material(certificate=certificate, key=key, client_ca=client_ca)


def _text(path: str, key: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise OSError(errno.EFBIG, "it is too large for a certificate or key")
    except OSError as error:
        raise ListenError(f"{key}: cannot read {path}: {error.strerror}") from error
    return data


def _parsed(path: str, key: str, parse: Callable[[bytes], T], data: bytes) -> T:
    try:
        return parse(data)
    except TypeError:
        raise ListenError(f"{key}: {path} is encrypted: store it without a passphrase") from None
    except ValueError:
        what = "private key" if key == "tls.key" else "certificate"
        raise ListenError(f"{key}: {path} has no {what} in PEM") from None


def _private_key(data: bytes) -> Any:
    return serialization.load_pem_private_key(data, password=None)


def _public(key: Any) -> bytes:
    encoded: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _check_time(path: str, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc <= now:
        raise ListenError(f"tls.certificate: {path} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if certificate.not_valid_before_utc > now:
        since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise ListenError(f"tls.certificate: {path} is not valid before {since}: check the clock of this machine")


def _identity(path: str) -> tuple[int, int, int]:
    """Changes with the file; zeros if it cannot be read."""
    try:
        facts = os.stat(path)
    except OSError:
        return 0, 0, 0
    return facts.st_ino, facts.st_mtime_ns, facts.st_size
