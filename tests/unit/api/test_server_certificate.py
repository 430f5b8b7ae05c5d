"""The files of TLS: what is wrong with them is said before the daemon serves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from helpers import certificates
from toband.api.server_certificate import ServerCertificate
from toband.api.unix_socket import ListenError
from toband.config.settings import TlsSettings

CA = certificates.authority()
GOOD = certificates.server(CA)
FORTNIGHT = timedelta(days=14)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = tmp_path_factory.mktemp("tls")
    certificates.store(GOOD, files, "good")
    certificates.store(certificates.server(CA, begins=-FORTNIGHT, lifetime=timedelta(days=7)), files, "expired")
    certificates.store(certificates.server(CA, begins=FORTNIGHT), files, "early")
    (files / "text").write_text("no certificate")
    (files / "long").write_bytes(b"x" * (1024 * 1024 + 1))
    key = serialization.load_pem_private_key(GOOD.key, password=None)
    (files / "locked.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a passphrase"),
        )
    )
    return files


def credentials(files: Path, certificate: str, key: str, client_ca: str = "", *, required: bool = False) -> object:
    paths = [str(files / name) if name else "" for name in (certificate, key, client_ca)]
    settings = TlsSettings(certificate=paths[0], key=paths[1], client_ca=paths[2])
    return ServerCertificate(settings, require_client=required).credentials()


@pytest.mark.parametrize(
    ("certificate", "key", "client_ca", "problem"),
    [
        ("", "", "", "set `certificate` and `key` in [tls]"),
        ("absent", "good.key", "", "tls.certificate: cannot read DIR/absent: No such file or directory"),
        ("good.crt", "absent", "", "tls.key: cannot read DIR/absent"),
        (".", "good.key", "", "tls.certificate: cannot read DIR: Is a directory"),
        ("long", "good.key", "", "it is too large for a certificate or key"),
        ("text", "good.key", "", "tls.certificate: DIR/text has no certificate in PEM"),
        ("good.key", "good.key", "", "tls.certificate: DIR/good.key has no certificate in PEM"),
        ("good.crt", "text", "", "tls.key: DIR/text has no private key in PEM"),
        ("good.crt", "locked.key", "", "tls.key: DIR/locked.key is encrypted"),
        ("good.crt", "early.key", "", "tls.key: DIR/early.key does not belong to the certificate DIR/good.crt"),
        ("expired.crt", "expired.key", "", "tls.certificate: DIR/expired.crt expired on "),
        ("early.crt", "early.key", "", "tls.certificate: DIR/early.crt is not valid before "),
        ("good.crt", "good.key", "text", "tls.client_ca: DIR/text has no certificate in PEM"),
    ],
)
def test_files_that_cannot_be_used(files: Path, certificate: str, key: str, client_ca: str, problem: str) -> None:
    with pytest.raises(ListenError) as caught:
        credentials(files, certificate, key, client_ca)
    assert problem.replace("DIR", str(files)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_required_client_certificates_need_an_authority(files: Path) -> None:
    with pytest.raises(ListenError, match="set `client_ca`"):
        credentials(files, "good.crt", "good.key", required=True)
    assert credentials(files, "good.crt", "good.key", "good.crt", required=True)
