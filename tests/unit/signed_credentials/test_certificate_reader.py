"""The names of a client certificate."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toband.signed_credentials.certificate_reader import read_certificate

NOT_AFTER = datetime(2040, 1, 1, tzinfo=UTC)


def certificate(common_name: str, *names: x509.GeneralName) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA")]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOT_AFTER - timedelta(days=1))
        .not_valid_after(NOT_AFTER)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_names() -> None:
    pem = certificate(
        "build-7",
        x509.DNSName("b.example.com"),
        x509.RFC822Name("build@example.com"),
        x509.UniformResourceIdentifier("spiffe://example.com/build"),
        x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
    )
    facts = read_certificate(pem)
    assert facts.subject_cn == "build-7"
    assert facts.san == ("b.example.com", "build@example.com", "spiffe://example.com/build", "10.0.0.1")
    assert facts.not_after == NOT_AFTER


def test_what_it_does_not_have() -> None:
    assert read_certificate(certificate("only")).san == ()
    assert read_certificate(certificate("", x509.DNSName("b"))).subject_cn == ""
    with pytest.raises(ValueError, match=r"."):
        read_certificate(b"no certificate")
