"""Finds out why a TCP connection to the daemon fails, with a handshake of its own: gRPC's messages do not say it.

Also the certificates that this machine trusts. Loaded only for TLS, or after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from toban.sdk.address import Address
from toban.sdk.credentials import TlsFiles
from toban.sdk.errors import Refused, TobanError, Unreachable

# For each of connection, handshake and first answer.
_WITHIN: Final = 5.0

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which ssl.VerifyFlags does not name.
_NO_CHECK_TIME: Final = 0x200000

# X509_V_ERR of OpenSSL.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_HOST_NAME: Final = (62, 64)
_UNKNOWN_CA: Final = (2, 18, 19, 20, 21)

# A server that speaks something else.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST")


class ConnectReason(StrEnum):
    """Why there is no connection: the `reason` of the error. These come from the client."""

    REMOTE_UNREACHABLE = "REMOTE_UNREACHABLE"
    CERTIFICATE_EXPIRED = "TLS_CERTIFICATE_EXPIRED"
    CERTIFICATE_NOT_YET_VALID = "TLS_CERTIFICATE_NOT_YET_VALID"
    HOST_NAME = "TLS_HOST_NAME"
    UNKNOWN_CA = "TLS_UNKNOWN_CA"
    CERTIFICATE_UNUSABLE = "TLS_CERTIFICATE_UNUSABLE"
    NO_TLS = "TLS_NOT_SPOKEN"
    TLS_REQUIRED = "TLS_REQUIRED"
    CLIENT_CERTIFICATE_REQUIRED = "TLS_CLIENT_CERTIFICATE_REQUIRED"
    CLIENT_CERTIFICATE_REFUSED = "TLS_CLIENT_CERTIFICATE_REFUSED"
    CLIENT_CERTIFICATE_UNUSABLE = "TLS_CLIENT_CERTIFICATE_UNUSABLE"


def system_ca() -> bytes:
    """The certificates that this machine trusts; empty if it has no such file, and gRPC uses its own."""
    path = ssl.get_default_verify_paths().cafile
    try:
        with open(path or "", "rb") as file:
            return file.read()
    except OSError:
        return b""


async def find_tls_problem(address: Address, files: TlsFiles) -> TobanError | None:
    """The error to raise for an address that cannot be reached; None if neither TLS nor the network explains it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3 * _WITHIN):
            return await asyncio.to_thread(_find, address, files)
    return None


def _find(address: Address, files: TlsFiles) -> TobanError | None:
    try:
        with socket.create_connection((address.host, address.port), _WITHIN):
            pass
    except socket.gaierror:
        return _no_connection(address, f"no such host {address.host}")
    except TimeoutError:
        return _no_connection(address, f"no answer within {_WITHIN:g} s")
    except ConnectionRefusedError:
        return _no_connection(address, "nothing listens there")
    except OSError as error:
        return _no_connection(address, (error.strerror or "no connection").lower())
    return _find_in_handshake(address, files) if address.tls else _find_tls_server(address)


def _no_connection(address: Address, why: str) -> TobanError:
    reason = ConnectReason.REMOTE_UNREACHABLE if address.tls else ""
    return Unreachable(f"no daemon answers at {address.text}: {why}", reason=reason)


def _find_tls_server(address: Address) -> TobanError | None:
    """For plaintext: whether the server expects TLS."""
    try:
        _handshake(address, _context(TlsFiles(), verify=False))
    except ssl.SSLError as error:
        # A server that refuses this handshake by an alert speaks TLS too.
        if "ALERT" not in str(error.reason):
            return None
    except OSError:
        return None
    return Unreachable(
        f"no daemon answers at {address.text} without TLS: the server expects TLS", reason=ConnectReason.TLS_REQUIRED
    )


def _find_in_handshake(address: Address, files: TlsFiles) -> TobanError | None:
    try:
        context = _context(files, verify=True)
    except (OSError, ValueError) as error:
        # A wrong key, an encrypted key or broken PEM.
        text = getattr(error, "reason", None) or error
        return Refused(
            f"cannot use the certificates for {address.text}: {_words(str(text))}",
            reason=ConnectReason.CLIENT_CERTIFICATE_UNUSABLE,
        )
    try:
        answered = _handshake(address, context)
    except ssl.SSLCertVerificationError as error:
        return _certificate_problem(address, files, error)
    except ssl.SSLError as error:
        return _handshake_problem(address, files, str(error.reason))
    except OSError:
        return Unreachable(f"cannot connect to {address.text}: the server ended the TLS handshake")
    return None if answered else _client_problem(address, files, "")


def _certificate_problem(address: Address, files: TlsFiles, error: ssl.SSLCertVerificationError) -> TobanError:
    """The server's certificate is not accepted."""
    start = f"cannot trust {address.text}"
    code = error.verify_code
    if code in (_EXPIRED, _NOT_YET_VALID):
        certificate = _server_certificate(address, files)
        expired = code == _EXPIRED
        at = _time(certificate, "notAfter", "at") if expired else _time(certificate, "notBefore", "only from")
        words = "has expired" if expired else "is not valid yet"
        reason = ConnectReason.CERTIFICATE_EXPIRED if expired else ConnectReason.CERTIFICATE_NOT_YET_VALID
        return Unreachable(f"{start}: the server's certificate {words}{at}", reason=reason)
    if code in _HOST_NAME:
        names = ", ".join(_names(_server_certificate(address, files))) or "no name"
        return Unreachable(
            f"{start}: the server's certificate is for {names}, not for {address.host}", reason=ConnectReason.HOST_NAME
        )
    if code in _UNKNOWN_CA:
        by = "the given CA" if files.ca else "a CA that this machine trusts"
        return Unreachable(f"{start}: the server's certificate is not signed by {by}", reason=ConnectReason.UNKNOWN_CA)
    return Unreachable(
        f"{start}: {error.verify_message or 'the certificate cannot be verified'}",
        reason=ConnectReason.CERTIFICATE_UNUSABLE,
    )


def _handshake_problem(address: Address, files: TlsFiles, reason: str) -> TobanError:
    if any(each in reason for each in _NO_TLS):
        message = f"cannot connect to {address.text}: the server there speaks no TLS"
        return Unreachable(message, reason=ConnectReason.NO_TLS)
    if "ALERT" in reason and ("CERTIFICATE" in reason or "CA" in reason.split("_") or "HANDSHAKE_FAILURE" in reason):
        return _client_problem(address, files, _words(reason))
    return Unreachable(f"cannot connect to {address.text}: the TLS handshake failed: {_words(reason)}")


def _client_problem(address: Address, files: TlsFiles, why: str) -> TobanError:
    """The server ended the connection because of the client's certificate; servers of gRPC send no alert for it."""
    if files.certificate:
        return Refused(
            f"{address.text} refuses the client certificate{f': {why}' if why else ''}",
            reason=ConnectReason.CLIENT_CERTIFICATE_REFUSED,
        )
    return Refused(f"{address.text} requires a client certificate", reason=ConnectReason.CLIENT_CERTIFICATE_REQUIRED)


def _handshake(address: Address, context: ssl.SSLContext) -> bool:
    """Whether the server sends its settings. With TLS 1.3 it checks the client's certificate after the handshake only.

    Raises OSError and SSLError.
    """
    with _connected(address, context) as wrapped:
        try:
            return bool(wrapped.recv(1))
        except TimeoutError:
            return True


@contextlib.contextmanager
def _connected(address: Address, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection((address.host, address.port), _WITHIN) as connection,
        context.wrap_socket(connection, server_hostname=address.host) as wrapped,
    ):
        yield wrapped


def _server_certificate(address: Address, files: TlsFiles) -> dict[str, Any]:
    """The certificate, whatever its names and its time; empty if it cannot be had."""
    context = _context(files, verify=True)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    try:
        with _connected(address, context) as wrapped:
            return wrapped.getpeercert() or {}
    except OSError:
        return {}


def _context(files: TlsFiles, *, verify: bool) -> ssl.SSLContext:
    """Raises OSError and ValueError for certificates that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if files.ca:
        context.load_verify_locations(cadata=files.ca.decode("ascii", "replace"))
    else:
        context.load_default_certs()
    if files.certificate:
        with tempfile.TemporaryDirectory(prefix="toban-") as directory:
            # Private to this user; the module takes files only.
            certificate = _write(directory, "crt", files.certificate)
            context.load_cert_chain(certificate, _write(directory, "key", files.key), password=_no_password)
    return context


def _write(directory: str, name: str, content: bytes) -> str:
    path = os.path.join(directory, name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path


def _no_password() -> str:
    raise ValueError("the key is encrypted: decrypt it first")


def _names(certificate: dict[str, Any]) -> list[str]:
    return [str(value) for _, value in certificate.get("subjectAltName", ())]


def _time(certificate: dict[str, Any], field: str, word: str) -> str:
    """In brackets; empty if it is not known."""
    text = certificate.get(field)
    if not text:
        return ""
    return f" ({word} {datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC):%Y-%m-%d %H:%M:%S} UTC)"


def _words(reason: str) -> str:
    """`TLSV1_ALERT_UNKNOWN_CA` as `unknown ca`."""
    text = reason.rpartition("ALERT_")[2]
    return text.replace("_", " ").lower() if text.isupper() or "_" in text else text
