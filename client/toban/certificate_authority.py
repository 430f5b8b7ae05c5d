"""A certificate authority of one's own: it signs certificates for a server and its clients.

Needs `cryptography`, of the extra `daemon`: import this module where it is used only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# The clocks of other machines may be behind.
_CLOCK_MARGIN: Final = timedelta(minutes=10)
_LONGEST_COMMON_NAME: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair()"


class CertificateAuthority:
    """Signs certificates. `pair` has its own certificate and key."""

    def __init__(self, pair: KeyPair) -> None:
        """Raises ValueError for PEM that cannot be used."""
        self.pair = pair
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("expected the key of an elliptic curve")
        self._key = key

    @classmethod
    def create(cls, name: str, *, lifetime: timedelta) -> CertificateAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, subject, key, _now(), lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(_pair(certificate, key))

    def server(self, hosts: Iterable[str], *, lifetime: timedelta, start: datetime | None = None) -> KeyPair:
        """A certificate for these names and IP addresses."""
        names = [_general_name(host) for host in hosts]
        return self._issue(str(names[0].value), names, ExtendedKeyUsageOID.SERVER_AUTH, lifetime, start)

    def client(self, name: str, *, lifetime: timedelta, start: datetime | None = None) -> KeyPair:
        """A certificate with the name as its common name."""
        return self._issue(name, [], ExtendedKeyUsageOID.CLIENT_AUTH, lifetime, start)

    def _issue(
        self,
        common_name: str,
        names: list[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        lifetime: timedelta,
        start: datetime | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_LONGEST_COMMON_NAME])])
        issuer = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _builder(subject, self._certificate.subject, key, start or _now(), lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pair(builder.sign(self._key, hashes.SHA256()), key)


def hosts_of(certificate: bytes) -> list[str]:
    """The names and IP addresses of a server's certificate. Raises ValueError."""
    try:
        found = x509.load_pem_x509_certificate(certificate).extensions
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_MARGIN)
        .not_valid_after(start + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _now() -> datetime:
    return datetime.now(UTC)
