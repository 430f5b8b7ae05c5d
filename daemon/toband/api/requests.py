"""What makes a repeated call harmless: who called, what for, under which id, and with which body."""

from __future__ import annotations

import hashlib

from google.protobuf.message import Message

from toband.api.errors import Context, InvalidFieldError
from toband.ports import Request

_MOST = 128


def caller(context: Context) -> str:
    """Everybody who can open the socket is the same caller, until there are credentials."""
    peer = context.peer()
    return "local" if peer.startswith("unix") else peer.rpartition(":")[0]


def request_of(rpc: str, message: Message, request_id: str, context: Context) -> Request | None:
    """None if the caller gave no id. Raises InvalidFieldError."""
    if not request_id:
        return None
    if len(request_id) > _MOST:
        raise InvalidFieldError(
            "request_id", f"found {len(request_id)} characters, at most {_MOST}"
        )
    body = message.SerializeToString(deterministic=True)
    digest = hashlib.sha256(body).hexdigest()
    return Request(caller=caller(context), rpc=rpc, id=request_id, digest=digest)
