"""An issuer of signed tokens, as an OIDC provider is one."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

NAME = "https://id.example/realm"
AUDIENCE = "toban"


class Issuer:
    """Signs with one key, of the kind RSA or EC."""

    def __init__(self, key_id: str = "first", algorithm: str = "ES256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.key: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if algorithm == "ES256"
            else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )

    def token(self, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """With claims that are valid, unless others are given; None leaves one out."""
        now = int(time.time())
        known = {"iss": NAME, "aud": AUDIENCE, "sub": "aiko", "iat": now, "exp": now + 600} | claims
        given = {name: value for name, value in known.items() if value is not None}
        return jwt.encode(given, self.key, self.algorithm, headers={"kid": self.key_id} | (header or {}))

    @property
    def jwk(self) -> dict[str, Any]:
        kind: Any = jwt.get_algorithm_by_name(self.algorithm)
        found: dict[str, Any] = kind.to_jwk(self.key.public_key(), as_dict=True)
        return found | {"kid": self.key_id, "use": "sig"}


def jwks(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [each.jwk for each in issuers]}).encode()
