"""An issuer of accounts on a loopback port: discovery, keys, the page of the login, and codes that are redeemed once.

Whoever comes to its login page is logged in as `aiko` at once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from helpers.issuer import Issuer, jwks

CLIENT = "toban-web"
SECRET = "s3cret"


class LoginIssuer:
    """`claims` are added to the next tokens; `redeemed` are the requests for tokens."""

    def __init__(self) -> None:
        self._keys = Issuer()
        self._codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {}
        self.redeemed: list[dict[str, str]] = []
        self.url = ""

    def facts(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def keys(self) -> bytes:
        return jwks(self._keys)

    def authorize(self, given: dict[str, str]) -> str:
        """Where the browser is sent with its code."""
        assert (given["response_type"], given["client_id"]) == ("code", CLIENT)
        assert given["code_challenge_method"] == "S256"
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = given
        return f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}"

    def redeem(self, fields: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        self.redeemed.append(fields)
        begun = self._codes.pop(fields.get("code", ""), None)
        if authorization != f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}":
            return 401, {"error": "invalid_client"}
        challenge = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        proved = base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        if begun is None or proved != begun["code_challenge"] or fields["redirect_uri"] != begun["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "the code is not valid"}
        claims = {"iss": self.url, "aud": CLIENT, "nonce": begun["nonce"], "groups": ["ops"], **self.claims}
        return 200, {"id_token": self._keys.token(**claims), "access_token": "x", "token_type": "Bearer"}


@contextmanager
def serving_issuer() -> Iterator[LoginIssuer]:
    issuer = LoginIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            match parts.path:
                case "/.well-known/openid-configuration":
                    self._answer(200, json.dumps(issuer.facts()).encode())
                case "/keys":
                    self._answer(200, issuer.keys())
                case "/authorize":
                    place = issuer.authorize({name: found[0] for name, found in parse_qs(parts.query).items()})
                    self._answer(302, b"", Location=place)
                case _:
                    self._answer(404, b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fields = {name: found[0] for name, found in parse_qs(body).items()}
            status, answer = issuer.redeem(fields, self.headers.get("Authorization", ""))
            self._answer(status, json.dumps(answer).encode())

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, text in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
