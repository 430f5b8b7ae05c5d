"""Credentials: client certificates, signed tokens, and whatever bytes a call presents of itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from faults.raw_http2 import PREFACE, frame, headers, request, settings
from fuzz.mutation import mutated_bytes, mutated_json, words_of
from fuzz.target import Check, Target, expect_type
from fuzz.watched_daemon import WatchedDaemon
from helpers.certificates import authority, server, store
from helpers.daemon import Daemon, running_daemon
from toban.token_text import new_token_text
from toband.domain.credential_rules import CertificateFacts, ClaimRule, IssuerRules, RoleGrant
from toband.domain.identity import Identity, Role
from toband.engine.access.external_identities import IssuerIdentities
from toband.engine.errors import InvalidCredentialError
from toband.signed_credentials.certificate_reader import read_certificate
from toband.signed_credentials.jwt_verifier import JwtVerifier

ISSUER, AUDIENCE = "https://issuer.example", "toban"
_KEY = ec.generate_private_key(ec.SECP256R1())
"""Another one for each process: a corpus would be of no use."""


def _certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "laptop")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    alternative = x509.SubjectAlternativeName([x509.DNSName("laptop.example"), x509.RFC822Name("aiko@example.com")])
    builder = x509.CertificateBuilder(name, name, _KEY.public_key(), 1, now, now + timedelta(days=9))
    return builder.add_extension(alternative, critical=False).sign(_KEY, SHA256()).public_bytes(Encoding.DER)


def _as_pem(der: bytes) -> bytes:
    import base64

    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


@contextlib.contextmanager
def _certificates(_work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        results = []
        for pem in (_as_pem(data), data):
            try:
                facts = read_certificate(pem)
            except ValueError:
                results.append("refused")
            else:
                expect_type(facts, CertificateFacts)
                results.append("read")
        read_certificate.cache_clear()
        return " ".join(results)

    yield check


# -- signed tokens


def _signed(**claims: Any) -> bytes:
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "aiko", "exp": 4_000_000_000, "groups": ["ops"], **claims}
    return jwt.encode(whole, _KEY, algorithm="ES256", headers={"kid": "k1"}).encode()


_SIGNED = (_signed(), _signed(groups=["dev"]), _signed(exp=1), _signed(sub={"a": 1}), _signed(aud="other"))


def _mutated_token(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A part of the token as its JSON, or its bytes."""
    parts = data.split(b".")
    index = random.randrange(len(parts))
    if random.randrange(3) == 0 or len(parts) != 3 or index == 2:
        return mutated_bytes(random, data, others)
    with contextlib.suppress(ValueError):
        text = jwt.utils.base64url_decode(parts[index])
        parts[index] = jwt.utils.base64url_encode(mutated_json(random, text, ()))
    return b".".join(parts)


@contextlib.contextmanager
def _signed_tokens(work: Path) -> Iterator[Check]:
    keys = work / "keys.json"
    public = jwt.algorithms.ECAlgorithm.to_jwk(_KEY.public_key())
    keys.write_text(f'{{"keys": [{public[:-1]}, "kid": "k1"}}]}}')
    rule = ClaimRule(grant=RoleGrant(role=Role.VIEWER), claims=(("groups", "ops"),))
    rules = IssuerRules(issuer=ISSUER, audience=AUDIENCE, label="test", rules=(rule,), jwks_file=str(keys))
    identities = IssuerIdentities([rules], JwtVerifier([rules]))
    signed = {token.rpartition(b".")[0] for token in _SIGNED}

    def check(data: bytes) -> str:
        # As the metadata of a call can be: printable ASCII.
        text = "".join(chr(byte) for byte in data if 0x21 <= byte <= 0x7E)
        try:
            identity = runner.run(identities.identify(text))
        except InvalidCredentialError as error:
            return f"refused {error.reason}"
        assert text.encode().rpartition(b".")[0] in signed, f"accepted without a signature: {text}"
        expect_type(identity, Identity)
        return "accepted"

    with asyncio.Runner() as runner:
        yield check


# -- metadata

_GET = "/toban.v1.AccessService/WhoAmI"
_bearer = words_of("Bearer ", "bearer  ", "Basic ", "toban_", "_", ".", "\t", "%", "eyJ", "=")


def _mutated_metadata(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return (_bearer if random.randrange(2) else mutated_bytes)(random, data, others)[:8000]


class _Presented:
    """Presents bytes as credential of a call, by hand: no client library would send them."""

    def __init__(self, daemon: Daemon, valid: bytes) -> None:
        self._valid = valid
        self._path = f"{daemon.state_dir}/toban.sock"
        self._watched = WatchedDaemon(daemon)

    def check(self, data: bytes) -> str:
        answer = self._answer(data)
        self._watched.expect_unharmed(repr(data))
        if b"token:fuzz" in answer:
            assert data.lower().startswith(b"bearer "), f"accepted: {data!r}"
            assert data[6:].strip() == self._valid, f"accepted: {data!r}"
            return "accepted"
        return "refused" if answer else "ended"

    def _answer(self, data: bytes) -> bytes:
        """All bytes of the answer, until the connection or the stream ends."""
        block = headers(_GET, authorization=data)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(20.0)
            connection.connect(self._path)
            with contextlib.suppress(ConnectionError):
                connection.sendall(PREFACE + settings() + block + request(b""))
                # Answered after the call: its answer shows that the call is over.
                connection.sendall(frame(6, 0, 0, b"12345678"))
            received = b""
            while b"grpc-status" not in received and (some := _received(connection)):
                received += some
        return received


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionError:
        return b""


@contextlib.contextmanager
def _presented(work: Path) -> Iterator[Check]:
    token = new_token_text()
    config = work / "toband.toml"
    config.write_text(f'[access.tokens.fuzz]\nrole = "viewer"\ndigest = "{token.digest}"\n')
    with running_daemon(work / "s", "--config", str(config)) as daemon:
        presented = _Presented(daemon, token.text.encode())
        assert presented.check(b"Bearer " + token.text.encode()) == "accepted"
        yield presented.check


# -- TLS handshakes


def _first_bytes() -> bytes:
    """What a client that wants TLS sends first."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent).do_handshake()
    return sent.read()


@contextlib.contextmanager
def _handshakes(work: Path) -> Iterator[Check]:
    # A certificate that expires soon is trouble in the log of the daemon.
    year = timedelta(days=365)
    ca = authority(lifetime=year)
    files = store(server(ca, lifetime=year), work)
    (work / "ca.crt").write_bytes(ca.pair.certificate)
    config = work / "toband.toml"
    config.write_text(f"""
listen = ["unix://{work}/s/toban.sock", {{address = "tls://127.0.0.1:0", client_certificates = "required"}}]
[tls]
certificate = "{files.certificate}"
key = "{files.key}"
client_ca = "{work}/ca.crt"
""")
    with running_daemon(work / "s", "--config", str(config)) as daemon:
        watched = WatchedDaemon(daemon)
        listed = json.loads((work / "s" / "toband.json").read_bytes())["listen"]
        port = next(int(str(each).rpartition(":")[2].rstrip("'}")) for each in listed if "tls://" in str(each))

        def check(data: bytes) -> str:
            """The daemon ends a connection whose client says no more, and goes on."""
            with socket.create_connection(("127.0.0.1", port), timeout=20.0) as connection:
                with contextlib.suppress(OSError):
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                answered = b""
                while some := _received(connection):
                    answered += some
            watched.expect_unharmed(repr(data[:200]))
            return f"answered with a record of kind {answered[0]}" if answered else "ended"

        yield check


TARGETS = (
    Target(
        name="certificates",
        reads="client certificates, DER and PEM",
        samples=(_certificate(), _as_pem(_certificate())),
        mutate=mutated_bytes,
        opened=_certificates,
    ),
    Target(
        name="signed-tokens",
        reads="signed tokens (JWT)",
        samples=_SIGNED,
        mutate=_mutated_token,
        opened=_signed_tokens,
    ),
    Target(
        name="authorization",
        reads="the credential in the metadata of a call",
        samples=(
            b"Bearer " + new_token_text().text.encode(),
            b"Bearer toban_0_0",
            b"Bearer " + _SIGNED[0],
            b"Basic YTpi",
            b"",
        ),
        mutate=_mutated_metadata,
        opened=_presented,
        seconds=None,
    ),
    Target(
        name="handshakes",
        reads="the first bytes of a connection to a TLS address",
        samples=(_first_bytes(), PREFACE + settings()),
        mutate=mutated_bytes,
        opened=_handshakes,
        seconds=None,
    ),
)
