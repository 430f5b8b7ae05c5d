"""Signed tokens of issuers: what is accepted, and everything that must not be."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from helpers.issuer import AUDIENCE, NAME, Issuer, jwks
from toband.domain.credential_rules import IssuerRules
from toband.ports import BadSignedTokenError
from toband.signed_credentials import key_sets
from toband.signed_credentials.jwt_verifier import JwtVerifier

ISSUER = Issuer()
OTHER = Issuer()


def rules(**source: str) -> IssuerRules:
    return IssuerRules(issuer=NAME, audience=AUDIENCE, label="oidc", rules=(), **source)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> JwtVerifier:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_bytes(jwks(ISSUER))
    return JwtVerifier([rules(jwks_file=str(path))])


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
async def test_a_token_of_the_issuer_has_its_claims(tmp_path: Path, algorithm: str) -> None:
    issuer = Issuer("second", algorithm)
    (tmp_path / "jwks.json").write_bytes(jwks(OTHER, issuer))
    verifier = JwtVerifier([rules(jwks_file=str(tmp_path / "jwks.json"))])
    name, claims = await verifier.verify(issuer.token(groups=["ops"]))
    assert (name, claims["sub"], claims["groups"]) == (NAME, "aiko", ["ops"])


def by_hand(algorithm: str, secret: bytes = b"", content: str = "") -> str:
    """What no library signs; `content` in place of the claims."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    claims = {"iss": NAME, "aud": AUDIENCE, "sub": "aiko", "exp": int(time.time()) + 600}
    header = {"alg": algorithm, "typ": "JWT", "kid": "first"}
    signed = f"{part(json.dumps(header).encode())}.{part((content or json.dumps(claims)).encode())}"
    signature = hmac.digest(secret, signed.encode(), "sha256") if secret else b""
    return f"{signed}.{part(signature)}"


def public_key(encoding: serialization.Encoding) -> bytes:
    encoded: bytes = ISSUER.key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


# Made when a test needs them: all tests are collected long before the last one runs.
REFUSED: dict[str, Callable[[], str]] = {
    "foreign key": OTHER.token,
    "none": lambda: by_hand("none"),
    "None": lambda: by_hand("None"),
    "unsigned": lambda: by_hand("ES256"),
    "HS256 with the public key": lambda: by_hand("HS256", public_key(serialization.Encoding.PEM)),
    "HS256 with its DER": lambda: by_hand("HS256", public_key(serialization.Encoding.DER)),
    "audience": lambda: ISSUER.token(aud="other"),
    "no audience": lambda: ISSUER.token(aud=None),
    "issuer": lambda: ISSUER.token(iss="https://other.example"),
    "no issuer": lambda: ISSUER.token(iss=None),
    "odd issuer": lambda: ISSUER.token(iss=NAME + "/"),
    "no expiry": lambda: ISSUER.token(exp=None),
    "odd expiry": lambda: ISSUER.token(exp="soon"),
    "expiry in text": lambda: ISSUER.token(exp=str(int(time.time()) + 3600)),
    "expiry beyond all years": lambda: ISSUER.token(exp=10**12),
    "expiry beyond all clocks": lambda: ISSUER.token(exp=10**30),
    "several issuers": lambda: by_hand("ES256", content=json.dumps({"iss": [NAME]})),
    "an issuer that is an object": lambda: by_hand("ES256", content=json.dumps({"iss": {NAME: 1}})),
    "odd claims": lambda: by_hand(
        "ES256", content=json.dumps({"iss": NAME, "exp": {}, "aud": 1, "sub": [], "nbf": []})
    ),
    "deep claims": lambda: by_hand("ES256", content="[" * 5000),
    "claims that are a number": lambda: by_hand("ES256", content="7"),
    "not yet": lambda: ISSUER.token(nbf=int(time.time()) + 3600),
    "unknown key": lambda: ISSUER.token(header={"kid": "unknown"}),
    "cut": lambda: ISSUER.token()[:-4],
    "text": lambda: "a.b.c",
    "empty": lambda: "..",
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_all_others_are_refused(verifier: JwtVerifier, kind: str) -> None:
    with pytest.raises(BadSignedTokenError) as caught:
        await verifier.verify(REFUSED[kind]())
    assert not caught.value.expired


async def test_an_expired_token_is_told_and_clocks_may_differ_a_little(verifier: JwtVerifier) -> None:
    with pytest.raises(BadSignedTokenError) as caught:
        await verifier.verify(ISSUER.token(exp=int(time.time()) - 3600))
    assert caught.value.expired
    await verifier.verify(ISSUER.token(exp=int(time.time()) - 5))
    await verifier.verify(ISSUER.token(nbf=int(time.time()) + 5))


class _Provider(BaseHTTPRequestHandler):
    """Serves the keys, counts the requests, and fails on demand."""

    keys = b""
    asked = 0
    location = ""

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.location:
            self.send_response(302)
            self.send_header("Location", self.location)
        else:
            self.send_response(200 if self.keys else 500)
        self.end_headers()
        self.wfile.write(self.keys)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[tuple[type[_Provider], str]]:
    handler = type("Provider", (_Provider,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield handler, f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_keys_are_fetched_once_and_again_for_a_new_key(
    provider: tuple[type[_Provider], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, url = provider
    handler.keys = jwks(ISSUER)
    verifier = JwtVerifier([rules(jwks_url=url)])
    for _ in range(3):
        await verifier.verify(ISSUER.token())
    assert handler.asked == 1
    new = Issuer("second")
    handler.keys = jwks(ISSUER, new)
    # Unknown keys do not make the daemon ask its provider without end.
    with pytest.raises(BadSignedTokenError):
        await verifier.verify(new.token())
    assert handler.asked == 1
    monkeypatch.setattr(key_sets, "READ_AGAIN_AFTER", 0.0)
    await verifier.verify(new.token())
    assert handler.asked == 2
    # While the provider fails, the known keys go on.
    handler.keys = b""
    monkeypatch.setattr(key_sets, "FRESH_FOR", 0.0)
    await verifier.verify(new.token())
    assert handler.asked == 3
    monkeypatch.setattr(key_sets, "USED_FOR", 0.0)
    with pytest.raises(BadSignedTokenError):
        await verifier.verify(new.token())


@pytest.mark.parametrize("keys", [b"", b"{}", b"[]", b'{"keys": [{"kty": "RSA"}]}', b"x" * (key_sets.LARGEST + 1)])
async def test_what_is_no_key_set_proves_nothing(provider: tuple[type[_Provider], str], keys: bytes) -> None:
    handler, url = provider
    handler.keys = keys
    with pytest.raises(BadSignedTokenError):
        await JwtVerifier([rules(jwks_url=url)]).verify(ISSUER.token())


async def test_no_proxy_stands_between_the_daemon_and_keys_of_its_machine(
    provider: tuple[type[_Provider], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, url = provider
    handler.keys = jwks(ISSUER)
    # Nothing listens there.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    await JwtVerifier([rules(jwks_url=url)]).verify(ISSUER.token())


async def test_a_redirect_does_not_leave_tls(provider: tuple[type[_Provider], str]) -> None:
    handler, url = provider
    handler.location = "http://id.example/keys"
    with pytest.raises(BadSignedTokenError):
        await JwtVerifier([rules(jwks_url=url)]).verify(ISSUER.token())
    assert handler.asked == 1


def test_symmetric_keys_of_a_set_are_left_out() -> None:
    octets = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}
    encryption = ISSUER.jwk | {"use": "enc", "kid": "enc"}
    found = key_sets.parse_keys(json.dumps({"keys": [octets, encryption, ISSUER.jwk]}).encode())
    assert [each.key_id for each in found] == ["first"]
