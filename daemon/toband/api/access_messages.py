"""Messages of identities and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from toban.v1 import access_pb2 as pb
from toban.v1 import access_rule_pb2
from toband.api.run_messages import timestamp
from toband.domain.identity import Identity, IdentityKind, Narrowing, Role
from toband.engine.access.sessions import CallerSession
from toband.engine.access.tokens import CONFIGURATION, has_ended
from toband.ports import StoredToken

_KINDS: Mapping[IdentityKind, pb.IdentityKind.ValueType] = {
    kind: pb.IdentityKind.Value(f"IDENTITY_KIND_{kind.value}") for kind in IdentityKind
}


def role(value: Role | None) -> access_rule_pb2.Role.ValueType:
    return access_rule_pb2.Role.Value(f"ROLE_{value.name if value else 'UNSPECIFIED'}")


def narrowing(value: Narrowing | None) -> pb.Narrowing | None:
    if value is None:
        return None
    return pb.Narrowing(workflows=value.workflows, labels=dict(value.labels))


def identity(value: Identity) -> pb.Identity:
    return pb.Identity(
        name=value.name,
        kind=_KINDS[value.kind],
        role=role(value.role),
        narrowing=narrowing(value.narrowing),
        aliases=sorted(value.aliases),
        expires_at=timestamp(value.expires_at),
        session_id=value.session,
    )


def session(value: CallerSession) -> pb.Session:
    return pb.Session(
        id=value.id,
        owner=value.identity.name,
        label=value.label,
        role=role(value.identity.role),
        narrowing=narrowing(value.identity.narrowing),
        created_at=timestamp(value.created_at),
        expires_at=timestamp(value.expires_at),
        last_used_at=timestamp(value.last_used_at),
    )


def token(value: StoredToken, now: datetime) -> pb.Token:
    configured = value.created_by == CONFIGURATION and not value.id
    state = pb.TOKEN_STATE_VALID
    if value.revoked_at is not None:
        state = pb.TOKEN_STATE_REVOKED
    elif has_ended(value, now):
        state = pb.TOKEN_STATE_EXPIRED
    return pb.Token(
        id=value.id,
        name=value.name,
        role=role(value.role),
        narrowing=narrowing(value.narrowing),
        state=state,
        created_at=None if configured else timestamp(value.created_at),
        created_by=value.created_by,
        expires_at=timestamp(value.expires_at),
        last_used_at=timestamp(value.last_used_at),
        revoked_at=timestamp(value.revoked_at),
        revoked_by=value.revoked_by,
    )
