"""Deliveries to hooks: a signed one becomes an event, once, under the name of its hook."""

from __future__ import annotations

import json
import secrets as random_secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog

from toban.definition.scalars.values import checked_value
from toban.limits import MAX_PAYLOAD_BYTES
from toband.domain.emitted_events import Emitted
from toband.domain.hook_model import HOOK_NAME, Hook, HookForm, mapped, unmet
from toband.domain.hook_signature import GITHUB_EVENT, SIGNATURES, SignatureError, check_signature
from toband.domain.identity import hook_identity
from toband.engine.access import call_identity
from toband.engine.access.failed_logins import FailedLogins
from toband.engine.access.tokens import invalid_credential
from toband.engine.errors import CredentialReason, InvalidCredentialError
from toband.engine.events.event_router import EventRouter
from toband.engine.hooks.hook_admin import HookAdmin, InvalidHookError
from toband.ports import Clock, SealError, SecretError, Store, call_made_by, describe_call

_SHOWN = frozenset({"content-type", "user-agent"})
_HIDDEN = SIGNATURES | {"x-forwarded-for", "x-real-ip", "x-api-key", "x-auth-token"}
_PING = "ping"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """As it came. `headers` have names in lower case; `source` is where it came from, as far as that is known."""

    hook: str
    headers: Mapping[str, str]
    body: bytes
    source: str
    forwarded_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What became of a delivery: its event, or why it was ignored."""

    hook: Hook
    event: Emitted | None = None
    created: bool = False
    ignored: str = ""


class HookDeliveries:
    """Belongs to the event loop. `free` failures of a source have no consequences."""

    def __init__(
        self,
        *,
        store: Store,
        admin: HookAdmin,
        events: EventRouter,
        clock: Clock,
        free: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._admin = admin
        self._events = events
        self._clock = clock
        self._free = free
        self._failures = FailedLogins(free())
        self._monotonic = monotonic

    async def deliver(self, delivery: Delivery) -> Delivered:
        """Raises InvalidCredentialError, TooManyFailuresError, InvalidHookError, and as `EventRouter.emit`."""
        hook, key = await self._verified(delivery)
        identity = hook_identity(hook.name)
        call_identity.enter(identity, call_identity.address(), call_identity.peer())
        call_made_by(identity.name)
        shown = _shown(delivery.headers)
        if hook.form is HookForm.GITHUB and shown.get(GITHUB_EVENT) == _PING:
            return self._ignored(hook, key, "it is a ping")
        content = {"body": _parsed(delivery.body), "headers": shown}
        if condition := unmet(hook.conditions, content):
            return self._ignored(hook, key, f"its condition is not true: {condition}")
        params = mapped(hook.params, content)
        describe_call(target=hook.name, detail=f"delivery {key}")
        event, created = await self._events.emit(
            hook.event_type,
            _payload(hook, key, content, params),
            caller=identity.name,
            dedupe_key=f"hook:{hook.name}:{key}",
            workflow=hook.workflow,
            params=params if hook.workflow else {},
        )
        return Delivered(hook=hook, event=event, created=created)

    def _ignored(self, hook: Hook, key: str, why: str) -> Delivered:
        describe_call(target=hook.name, detail=f"delivery {key}, ignored: {why}")
        return Delivered(hook=hook, ignored=why)

    async def _verified(self, delivery: Delivery) -> tuple[Hook, str]:
        """The hook, and what identifies the delivery.

        An unknown hook, a wrong signature and a secret that cannot be read get one answer, after the same work.
        """
        hook = await self._store.get_hook(delivery.hook) if HOOK_NAME.fullmatch(delivery.hook) else None
        secret, problem = random_secrets.token_hex(), "no such hook"
        if hook is not None:
            problem = ""
            try:
                secret = await self._admin.secret_of(hook)
            except (SecretError, SealError) as error:
                problem = str(error)
                log.warning("cannot check deliveries", action="hook_unreadable", hook=hook.name, error=problem)
        form = hook.form if hook is not None else HookForm.GITHUB
        try:
            key = check_signature(form, secret.encode(), delivery.headers, delivery.body, self._clock.now())
        except SignatureError as error:
            self._refuse(delivery, problem or str(error), stale=error.stale)
        if hook is None or problem:
            self._refuse(delivery, problem, stale=False)
        return hook, key

    def _refuse(self, delivery: Delivery, why: str, *, stale: bool) -> NoReturn:
        detail = f"{why}, forwarded for {delivery.forwarded_for}" if delivery.forwarded_for else why
        if stale:
            text = "the time of the delivery is more than five minutes away from the clock of the daemon"
            raise InvalidCredentialError(text, CredentialReason.EXPIRED, detail=detail)
        source, now = f"{delivery.source} {delivery.forwarded_for}".strip(), self._monotonic()
        if source:
            self._failures.free = self._free()
            self._failures.check(source, now)
            self._failures.failed(source, now)
        raise InvalidCredentialError(str(invalid_credential()), CredentialReason.INVALID, detail=detail)


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that conditions, parameters and events see: no credentials, and no signatures."""
    return {
        name: value for name, value in headers.items() if name in _SHOWN or (name[:2] == "x-" and name not in _HIDDEN)
    }


def _parsed(body: bytes) -> Any:
    """Raises InvalidHookError."""
    if not body.strip():
        return {}
    try:
        return checked_value(json.loads(body.decode(), parse_constant=_no_constant))
    except UnicodeDecodeError:
        raise InvalidHookError("body", "must be UTF-8 text") from None
    except RecursionError:
        raise InvalidHookError("body", "is nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidHookError(
            "body", f"invalid JSON: {error.msg} ({place}); deliveries have the content type application/json"
        ) from None
    except ValueError as error:
        raise InvalidHookError("body", str(error)) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _payload(hook: Hook, key: str, content: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
    """Of the event. Raises InvalidHookError if it is too large."""
    if hook.workflow:
        payload = {"hook": hook.name, "delivery": key, "headers": content["headers"], "body": content["body"]}
        if _size(payload) > MAX_PAYLOAD_BYTES:
            payload = {"hook": hook.name, "delivery": key, "body_bytes": _size(content["body"])}
        return payload
    payload = dict(params) if hook.params else content["body"]
    size = _size(payload)
    if size > MAX_PAYLOAD_BYTES:
        hint = "" if hook.params else "; let the hook take only some fields of it, with `params`"
        raise InvalidHookError("body", f"an event has at most {MAX_PAYLOAD_BYTES} bytes of payload, found {size}{hint}")
    return payload


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
