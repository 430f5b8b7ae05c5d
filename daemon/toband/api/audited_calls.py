"""What the audit log says of a call, from its rule and its request."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from toband.domain.access_rule import AccessRule
from toband.domain.audit_chain import AuditOutcome, AuditRecord
from toband.domain.identity import Identity
from toband.engine.access.audit_log import AuditLog
from toband.engine.errors import InvalidCredentialError, NotApproverError, NotPermittedError
from toband.ports import AuditedCall, Clock

_TARGETS = ("name", "workflow", "run_id", "id", "type", "subject", "token")
"""Fields that name the target of a call whose rule names none."""
# Never a field whose content may be secret, such as parameters and payloads.
_SHOWN = (
    "step",
    "decision",
    "note",
    "reason",
    "enabled",
    "version",
    "scope",
    "only",
    "from_steps",
    "from_run",
    "skip",
    "skip_note",
    "everything",
    "newest_version",
    "force",
    "again",
    "rule",
    "role",
    "triggered_by",
    "workflow",
    "workflows",
    "run_id",
    "with_key",
)
"""Fields that the detail of an entry shows if they are set."""
_TEXT_MOST = 500
_LEAVE_ALL_AS_IT_IS = {"validate_only": True, "dry_run": True, "repair": False}
"""Fields with the value with which a call changes nothing."""
NOT_AN_APPROVER = "NOT_AN_APPROVER"


class AuditedCalls:
    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    def begun(
        self, method: str, rule: AccessRule | None, identity: Identity | None, source: str, request: Message
    ) -> AuditedCall | None:
        """None for a call that changes nothing."""
        if rule is None or identity is None or not rule.audited or not _changes(request):
            return None
        return AuditedCall(
            now=self._clock.now,
            actor=identity.name,
            role=_role(identity),
            source=source,
            method=short(method),
            target=target_of(rule, request),
            request_id=str(getattr(request, "request_id", "")),
            detail=_shown(request, rule),
        )

    async def succeeded(self, call: AuditedCall) -> None:
        """Before the answer is sent: what is not recorded yet is recorded now, durably. Raises StoreError."""
        if not call.recorded:
            await self._log.record(call.record())

    def refused(
        self,
        error: BaseException | None,
        method: str,
        identity: Identity | None,
        source: str,
        rule: AccessRule | None = None,
        request: Message | None = None,
    ) -> None:
        """Records the error of a call if it is a refusal."""
        detail = ""
        if isinstance(error, InvalidCredentialError):
            reason, detail = error.reason.value, error.detail
        elif isinstance(error, NotPermittedError):
            reason = error.reason.value
        elif isinstance(error, NotApproverError):
            reason = NOT_AN_APPROVER
        else:
            return
        self._log.refuse(
            AuditRecord(
                at=self._clock.now(),
                actor=identity.name if identity is not None else "",
                role=_role(identity),
                source=source,
                method=short(method),
                target=target_of(rule, request) if rule is not None and request is not None else "",
                outcome=AuditOutcome.REFUSED,
                reason=reason,
                detail=_cut(detail),
                request_id=_cut(str(getattr(request, "request_id", ""))),
            )
        )


def short(method: str) -> str:
    """`RunService/StartRun` of `/toban.v1.RunService/StartRun`."""
    service, _, name = method.rpartition("/")
    return f"{service.rpartition('.')[2]}/{name}"


def target_of(rule: AccessRule, request: Message) -> str:
    if rule.field:
        return _cut(str(getattr(request, rule.field.partition(".")[0], "")))
    for name in _TARGETS:
        if name in request.DESCRIPTOR.fields_by_name and isinstance(value := getattr(request, name), str) and value:
            return _cut(value)
    return ""


def _role(identity: Identity | None) -> str:
    return identity.role.label if identity is not None and identity.role is not None else ""


def _changes(request: Message) -> bool:
    fields = request.DESCRIPTOR.fields_by_name
    return not any(name in fields and getattr(request, name) is value for name, value in _LEAVE_ALL_AS_IT_IS.items())


def _shown(request: Message, rule: AccessRule) -> str:
    fields = request.DESCRIPTOR.fields_by_name
    shown = []
    for name in _SHOWN:
        field = fields.get(name)
        if field is None or field.message_type is not None or name == rule.field:
            continue
        value: Any = getattr(request, name)
        if value or (field.type == field.TYPE_BOOL and name == "enabled"):
            shown.append(f"{name}={_cut(_text(field, value))}")
    return ", ".join(shown)


def _text(field: Any, value: Any) -> str:
    if field.is_repeated:
        return "+".join(map(str, value))
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MOST else f"{text[:_TEXT_MOST]}…"
