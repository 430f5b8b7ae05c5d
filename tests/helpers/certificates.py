"""Certificates for a test: authorities, and what they sign, also what must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from toban.certificate_authority import CertificateAuthority, KeyPair

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Stored:
    """A certificate and its key in files."""

    certificate: Path
    key: Path


def authority(name: str = "test CA", lifetime: timedelta = DAY) -> CertificateAuthority:
    return CertificateAuthority.create(name, lifetime=lifetime)


def server(ca: CertificateAuthority, *hosts: str, begins: timedelta = -DAY, lifetime: timedelta = 2 * DAY) -> KeyPair:
    """For this machine, unless hosts are named; `begins` is counted from now."""
    return ca.server(hosts or ("localhost", "127.0.0.1"), lifetime=lifetime, start=datetime.now(UTC) + begins)


def client(ca: CertificateAuthority, name: str, begins: timedelta = -DAY, lifetime: timedelta = 2 * DAY) -> KeyPair:
    return ca.client(name, lifetime=lifetime, start=datetime.now(UTC) + begins)


def store(pair: KeyPair, directory: Path, name: str = "server") -> Stored:
    """Writes the files, also over older ones."""
    stored = Stored(directory / f"{name}.crt", directory / f"{name}.key")
    for path, data in ((stored.certificate, pair.certificate), (stored.key, pair.key)):
        new = path.with_suffix(f"{path.suffix}.new")
        new.write_bytes(data)
        new.replace(path)
    return stored


def serial(pair: bytes) -> int:
    return x509.load_pem_x509_certificate(pair).serial_number
