"""The signature of a delivery to a hook, and what identifies the delivery."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final

from toband.domain.hook_model import HookForm

TOLERANCE: Final = 300.0
"""Seconds that the time of a delivery may be away from the clock of the daemon."""
GITHUB_EVENT: Final = "x-github-event"
SIGNATURES: Final = frozenset({"x-hub-signature", "x-hub-signature-256", "x-toban-signature"})
_GITHUB_DELIVERY = "x-github-delivery"
_DELIVERY, _TIMESTAMP, _SIGNATURE = "x-toban-delivery", "x-toban-timestamp", "x-toban-signature"
_HEX = re.compile(r"sha256=([0-9a-fA-F]{64})")
_SECONDS = re.compile(r"[0-9]{1,12}")
# Not a number alone: a signed `TIMESTAMP.BODY` must never be readable as `DELIVERY.TIMESTAMP.BODY`.
_ID = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9_:.=+/-]{1,100}")


class SignatureError(Exception):
    """A delivery is not signed as it must be; the text is for the audit log. `stale`: only its time is wrong."""

    def __init__(self, text: str, *, stale: bool = False) -> None:
        super().__init__(text)
        self.stale = stale


def check_signature(form: HookForm, secret: bytes, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """What identifies the delivery, the same for each repetition of it. Raises SignatureError.

    Names of headers are in lower case.
    """
    if form is HookForm.GITHUB:
        _compare(secret, body, headers.get("x-hub-signature-256", ""))
        delivery = headers.get(_GITHUB_DELIVERY, "")
        if not _ID.fullmatch(delivery):
            raise SignatureError(f"no {_GITHUB_DELIVERY}")
        return delivery
    delivery, timestamp = headers.get(_DELIVERY, ""), headers.get(_TIMESTAMP, "")
    if not _SECONDS.fullmatch(timestamp):
        timestamp = ""
    if delivery and not _ID.fullmatch(delivery):
        delivery = timestamp = ""
    begin = f"{delivery}.{timestamp}." if delivery else f"{timestamp}."
    digest = _compare(secret, begin.encode() + body, headers.get(_SIGNATURE, "") if timestamp else "")
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE:
        raise SignatureError(f"signed at {timestamp}, more than {TOLERANCE:g} s away", stale=True)
    return delivery or digest


def _compare(secret: bytes, signed: bytes, given: str) -> str:
    """The signature in hexadecimal digits. Takes as long for a wrong one as for a right one."""
    match = _HEX.fullmatch(given)
    digest = hmac.new(secret, signed, sha256).hexdigest()
    if not hmac.compare_digest(digest, match[1].lower() if match is not None else ""):
        raise SignatureError("wrong signature" if match is not None else "no signature, or no time")
    return digest
