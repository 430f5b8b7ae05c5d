"""What requests of several services share: who calls, what makes a repeat harmless, and definitions."""

from __future__ import annotations

import hashlib
import os

from google.protobuf import field_mask_pb2
from google.protobuf.message import Message

from toban.limits import MAX_REQUEST_ID_CHARS
from toban.v1 import workflow_pb2
from toband.api.errors import Context, InvalidFieldError
from toband.engine.origins import Origin
from toband.ports import Request

_ORIGIN = "toban-origin"


def caller(context: Context) -> str:
    """Everybody who can open the socket is the same caller, until there are credentials."""
    peer = context.peer()
    return "local" if peer.startswith("unix") else peer.rpartition(":")[0]


def origin_of(context: Context) -> Origin | None:
    """The attempt that the metadata of a call name; None if it is from outside. Raises InvalidFieldError."""
    given = [value for key, value in context.invocation_metadata() or () if key == _ORIGIN]
    if not given:
        return None
    run_id, _, token = str(given[-1]).partition("/")
    if not run_id or not token:
        raise InvalidFieldError(
            _ORIGIN,
            "expected the run's id, `/` and the attempt's token, as a step's environment has them",
        )
    return Origin(run_id=run_id, token=token)


def request_of(rpc: str, message: Message, request_id: str, context: Context) -> Request | None:
    """None if the caller gave no id. Raises InvalidFieldError."""
    if not request_id:
        return None
    if len(request_id) > MAX_REQUEST_ID_CHARS:
        raise InvalidFieldError(
            "request_id", f"found {len(request_id)} characters, at most {MAX_REQUEST_ID_CHARS}"
        )
    body = message.SerializeToString(deterministic=True)
    digest = hashlib.sha256(body).hexdigest()
    return Request(caller=caller(context), rpc=rpc, id=request_id, digest=digest)


def base_dir(definition: workflow_pb2.Definition) -> str:
    """Raises InvalidFieldError."""
    if definition.base_dir and not os.path.isabs(definition.base_dir):
        raise InvalidFieldError(
            "definition.base_dir", f"found {definition.base_dir!r}, expected an absolute path"
        )
    return definition.base_dir


def check_mask(mask: field_mask_pb2.FieldMask) -> None:
    """Raises InvalidFieldError for anything but the definition, which is what an empty mask means."""
    paths = list(mask.paths)
    if paths not in ([], ["definition"]):
        raise InvalidFieldError("update_mask", f"found {paths}, only `definition` can be updated")
