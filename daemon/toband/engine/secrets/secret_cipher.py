"""Encryption of secrets: AES-256-GCM with a random nonce, bound to the place that the data belongs to.

The library needs megabytes of memory, so it is loaded with the first secret.
"""

from __future__ import annotations

import hmac
import os

from toband.ports import SealError

KEY_BYTES = 32
_FORMAT = b"\x01"
_NONCE_BYTES = 12
_TAG_BYTES = 16


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def encrypt(key: bytes, data: bytes, place: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return _FORMAT + nonce + AESGCM(key).encrypt(nonce, data, place.encode())


def decrypt(key: bytes, data: bytes, place: str) -> bytes:
    """Raises SealError if it was encrypted with another key or for another place, or was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(data) < len(_FORMAT) + _NONCE_BYTES + _TAG_BYTES or not data.startswith(_FORMAT):
        raise SealError("decrypt", place, "the stored data is damaged")
    nonce, sealed = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
    try:
        return AESGCM(key).decrypt(nonce, sealed, place.encode())
    except InvalidTag:
        raise SealError("decrypt", place, "the stored data was changed, or belongs to another place or key") from None


def keyed_digest(key: bytes, text: str) -> str:
    return hmac.digest(key, f"toban digest\0{text}".encode(), "sha256").hex()
