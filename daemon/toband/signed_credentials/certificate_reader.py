"""Reads the names of a client certificate."""

from __future__ import annotations

from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from toband.domain.credential_rules import CertificateFacts

_UNUSABLE = (x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


@lru_cache(maxsize=256)
def read_certificate(pem: bytes) -> CertificateFacts:
    """Raises ValueError."""
    try:
        return _facts(x509.load_pem_x509_certificate(pem))
    except _UNUSABLE as error:
        raise ValueError(str(error)) from None


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
