"""Interceptor of every call: who calls, a slot of its lane, the request, whether it is permitted, the handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, cast

import grpc
from google.protobuf.message import DecodeError, Message

from toband.api.audited_calls import AuditedCalls
from toband.api.call_limits import Lanes
from toband.api.client_limits import ClientLimits
from toband.api.common_requests import ORIGIN, check_texts, origin_of
from toband.api.handler import Context, abort
from toband.api.request_errors import InvalidFieldError, SlowClientError, UnreadableRequestError
from toband.api.step_requests import mask_request
from toband.domain.access_rule import AccessRule
from toband.domain.identity import UNVERIFIED_DELIVERY, Identity
from toband.engine.access import call_identity
from toband.engine.access.authentication import Authenticator, Credentials
from toband.engine.access.door import Door
from toband.engine.access.live_streams import LiveStreams
from toband.engine.errors import CredentialReason, InvalidCredentialError, NotPermittedError
from toband.engine.execution.step_maskers import StepMaskers
from toband.memory_trim import STREAM, Trimmer
from toband.ports import StoreError, auditing

_Parse = Callable[[bytes], Any]
_Handler = Any


class PermissionCheck(Protocol):
    async def check(self, identity: Identity, rule: AccessRule, request: Message) -> None:
        """Raises NotPermittedError."""
        ...

    def may_change(self, identity: Identity, rule: AccessRule) -> bool:
        """Whether the identity may lose the permission for a call while it lasts."""
        ...

    async def lost(self, identity: Identity, rule: AccessRule, request: Message) -> NotPermittedError:
        """Waits until the identity may not make the call any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGate:
    """What every door shares."""

    lanes: Lanes
    rules: Mapping[str, AccessRule | None]
    authenticator: Authenticator
    permissions: PermissionCheck
    audit: AuditedCalls
    limits: ClientLimits
    maskers: StepMaskers
    streams: LiveStreams
    trimmer: Trimmer


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Of one door. Refusals have the usual error details.

    Every call is handled as a stream of requests: the identity is established before the request is read.
    """

    def open(self, gate: CallGate, door: Door) -> None:
        """Call it before the server starts, when the port is known."""
        self._gate = gate
        self._door = door

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or method not in self._gate.rules:
            return None
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(cast(Any, self._streaming(handler, method)))
        return grpc.stream_unary_rpc_method_handler(cast(Any, self._single(handler, method)))

    def _single(self, handler: _Handler, method: str) -> _Handler:
        async def call(_: object, context: Context) -> bytes:
            identity = await self._entered(method, context)
            # Its credential may end before it has a slot, and before the client has sent the request.
            with _ended_with_credential(self._gate.streams, identity) as ended:
                await self._slot(method, identity, context, weight=1)
                request = await self._request(handler, method, identity, context)
            if ended.error is not None:
                self._gate.audit.refused(ended.error, method, identity, call_identity.source())
                await abort(context, ended.error)
            answer = await self._answered(handler, request, method, identity, context)
            self._gate.limits.taking(cast("asyncio.Task[Any]", asyncio.current_task()))
            return cast(bytes, handler.response_serializer(answer))

        return call

    async def _answered(
        self, handler: _Handler, request: Any, method: str, identity: Identity | None, context: Context
    ) -> Any:
        """The answer, which may be sent: what the audit log says of the call is on disk."""
        gate, rule, source = self._gate, self._gate.rules.get(method), call_identity.source()
        audited = gate.audit.begun(method, rule, identity, source, request)
        try:
            with auditing(audited):
                answer = await handler.unary_unary(request, context)
            if audited is not None:
                await gate.audit.succeeded(audited)
        except grpc.aio.AbortError as aborted:
            gate.audit.refused(aborted.__cause__, method, identity, source, rule, request)
            raise
        except StoreError as error:
            await abort(context, error)
        finally:
            if audited is not None:
                audited.ended = True
        return answer

    def _streaming(self, handler: _Handler, method: str) -> _Handler:
        async def call(raws: AsyncIterator[bytes], context: Context) -> None:
            identity = await self._entered(method, context)
            with _ended_with_credential(self._gate.streams, identity) as ended:
                await self._slot(method, identity, context, weight=STREAM)
                await self._stream(handler, method, identity, raws, context, ended)
            if ended.error is not None:
                await abort(context, ended.error)

        return call

    async def _stream(
        self,
        handler: _Handler,
        method: str,
        identity: Identity | None,
        raws: AsyncIterator[bytes],
        context: Context,
        ended: _End,
    ) -> None:
        rule, permissions, watch = self._gate.rules.get(method), self._gate.permissions, None
        if handler.request_streaming:
            answers = handler.stream_stream(self._requests(raws, handler, method, identity, context), context)
        else:
            request = await self._request(handler, method, identity, context)
            await self._recorded(method, identity, request, context)
            answers = handler.unary_stream(request, context)
            if rule is not None and identity is not None and permissions.may_change(identity, rule):
                lost = permissions.lost(identity, rule, request)
                watch = asyncio.get_running_loop().create_task(_told(lost, ended.over))
        timer = _at_expiry(identity, ended)
        try:
            await _written(answers, handler.response_serializer, context)
        except grpc.aio.AbortError as aborted:
            self._gate.audit.refused(aborted.__cause__, method, identity, call_identity.source())
            raise
        finally:
            if watch is not None:
                watch.cancel()
            if timer is not None:
                timer.cancel()

    async def _recorded(self, method: str, identity: Identity | None, request: Any, context: Context) -> None:
        """Before the first answer of a stream: it is in the audit log even if it is ended early."""
        gate = self._gate
        audited = gate.audit.begun(method, gate.rules.get(method), identity, call_identity.source(), request)
        if audited is not None:
            try:
                await gate.audit.succeeded(audited)
            except StoreError as error:
                await abort(context, error)

    async def _entered(self, method: str, context: Context) -> Identity | None:
        """The identity of the caller; None if the method needs none."""
        if self._gate.rules.get(method) is None:
            return None
        try:
            identity = await self._identified(method, context)
        except Exception as error:
            self._gate.audit.refused(error, method, None, self._source(context))
            await abort(context, error)
        call_identity.enter(identity, self._door.address, _peer(context))
        return identity

    async def _slot(self, method: str, identity: Identity | None, context: Context, *, weight: int) -> None:
        """Gives the call a slot of its lane, until its task ends."""
        who = identity.name if identity is not None else ""
        lane = self._gate.lanes.of(method)
        try:
            await lane.enter(who)
        except Exception as error:
            await abort(context, error)

        def over(_: object) -> None:
            lane.leave(who)
            self._gate.trimmer.ended(weight)

        # The task ends with the call, however that ends.
        cast("asyncio.Task[Any]", asyncio.current_task()).add_done_callback(over)

    async def _identified(self, method: str, context: Context) -> Identity:
        if _is_signed(self._gate.rules.get(method)):
            return await self._gate.limits.identified(_peer(context), False, _unverified)
        credentials = _credentials(context)
        return await self._gate.limits.identified(
            _peer(context),
            credentials != Credentials(),
            lambda: self._gate.authenticator.identify(self._door, credentials),
        )

    def _source(self, context: Context) -> str:
        return f"{self._door.address} {_peer(context)}".rstrip()

    async def _request(self, handler: _Handler, method: str, identity: Identity | None, context: Context) -> Any:
        try:
            raw = await self._gate.limits.sent(context.read())
        except SlowClientError as error:
            await abort(context, error)
        if raw is grpc.aio.EOF:
            await abort(context, UnreadableRequestError("the call has no request"))
        return await self._permitted(cast(bytes, raw), handler, method, identity, context)

    async def _requests(
        self,
        raws: AsyncIterator[bytes],
        handler: _Handler,
        method: str,
        identity: Identity | None,
        context: Context,
    ) -> AsyncIterator[Any]:
        async for raw in raws:
            yield await self._permitted(raw, handler, method, identity, context)

    async def _permitted(
        self, raw: bytes, handler: _Handler, method: str, identity: Identity | None, context: Context
    ) -> Any:
        """The parsed request, if the identity may make it."""
        rule, request = self._gate.rules.get(method), None
        try:
            request = _parsed(raw, handler.request_deserializer)
            if rule is not None and identity is not None:
                if not rule.signed:  # nothing may change what is signed
                    await self._mask(method, request, context)
                await self._gate.permissions.check(identity, rule, request)
        except Exception as error:
            self._gate.audit.refused(error, method, identity, call_identity.source(), rule, request)
            await abort(context, error)
        return request

    async def _mask(self, method: str, request: Message, context: Context) -> None:
        try:
            origin = origin_of(context)
        except InvalidFieldError:
            return  # methods that need to know it refuse the call themselves
        if origin is not None:
            await mask_request(self._gate.maskers, method, origin, request)


class _End:
    """Of a call whose credential or permission has ended, which cancels its task."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.error: InvalidCredentialError | NotPermittedError | None = None

    def over(self, error: InvalidCredentialError | NotPermittedError) -> None:
        if self.error is None:
            self.error = error
            self._task.cancel()


@contextmanager
def _ended_with_credential(streams: LiveStreams, identity: Identity | None) -> Iterator[_End]:
    """Leaves the block, with an error, when the credential is revoked or gone. Nothing may be awaited before it."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    end = _End(task)
    if identity is None:
        yield end
        return
    try:
        with streams.open(identity.credential, end.over):
            yield end
    except asyncio.CancelledError:
        if end.error is None:
            raise
        task.uncancel()


def _at_expiry(identity: Identity | None, end: _End) -> asyncio.TimerHandle | None:
    if identity is None or identity.expires_at is None:
        return None
    expired = InvalidCredentialError("the credential has expired", CredentialReason.EXPIRED)
    left = (identity.expires_at - datetime.now(UTC)).total_seconds()
    return asyncio.get_running_loop().call_later(max(0.0, left), end.over, expired)


async def _told(lost: Coroutine[Any, Any, NotPermittedError], over: Callable[[NotPermittedError], None]) -> None:
    over(await lost)


def _is_signed(rule: AccessRule | None) -> bool:
    return rule is not None and rule.signed


async def _unverified() -> Identity:
    return UNVERIFIED_DELIVERY


def _credentials(context: Context) -> Credentials:
    given = {str(key): value for key, value in context.invocation_metadata() or ()}
    authorization, origin = given.get("authorization", ""), given.get(ORIGIN, "")
    certificate = [*context.auth_context().get("x509_pem_cert", ())]
    return Credentials(
        authorization=authorization if isinstance(authorization, str) else "",
        origin=origin if isinstance(origin, str) else "",
        certificate=certificate[0] if certificate else b"",
    )


def _peer(context: Context) -> str:
    """Where a call came from; empty for a socket, whose peers have no address."""
    peer = context.peer()
    return "" if peer.startswith("unix") else peer


async def _written(answers: AsyncGenerator[Any], serialize: Callable[[Any], bytes], context: Context) -> None:
    async with aclosing(answers):
        # While a reader does not take an answer, only its bytes stay in memory.
        async for data in _serialized(answers, serialize):
            await context.write(data)


async def _serialized(answers: AsyncIterator[Any], serialize: Callable[[Any], bytes]) -> AsyncIterator[bytes]:
    async for answer in answers:
        data = serialize(answer)
        del answer
        yield data


def _parsed(raw: bytes, parse: _Parse) -> Any:
    """Raises UnreadableRequestError, InvalidFieldError."""
    try:
        request = parse(raw)
        if b"\0" in raw:
            check_texts(request)
    except (DecodeError, ValueError) as error:
        raise UnreadableRequestError(str(error)) from None
    return request
