"""Reads the names of a client certificate, and when the certificates of the configuration expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from toband.domain.credential_rules import CertificateFacts, ExpiringCertificate

_UNUSABLE = (x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


@lru_cache(maxsize=256)
def read_certificate(pem: bytes) -> CertificateFacts:
    """Raises ValueError."""
    try:
        return _facts(x509.load_pem_x509_certificate(pem))
    except _UNUSABLE as error:
        raise ValueError(str(error)) from None


def read_expiry(paths: Mapping[str, str]) -> Sequence[ExpiringCertificate]:
    """All certificates of these files, by the keys that name the files; those that cannot be read are left out."""
    found = []
    for key, path in paths.items():
        try:
            certificates = x509.load_pem_x509_certificates(Path(path).read_bytes())
        except (OSError, ValueError):
            continue  # the door that uses the file reports it
        for number, each in enumerate(certificates, 1):
            where = f"{key} ({path})" if len(certificates) == 1 else f"certificate {number} of {key} ({path})"
            found.append(ExpiringCertificate(described=where, expires_at=each.not_valid_after_utc))
    return found


def _facts(found: x509.Certificate) -> CertificateFacts:
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return CertificateFacts(
        subject_cn=str(names[0].value) if names else "",
        san=_alternative_names(found),
        not_after=found.not_valid_after_utc,
    )


def _alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    kinds = (x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier, x509.IPAddress)
    return tuple(str(each.value) for each in extension.value if isinstance(each, kinds))
