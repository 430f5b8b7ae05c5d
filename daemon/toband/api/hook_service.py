"""HookService: see proto/toban/v1/hook.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from toban.limits import MIB
from toban.v1 import hook_pb2 as pb
from toban.v1 import hook_pb2_grpc
from toband.api import pages
from toband.api.common_requests import caller, identity
from toband.api.handler import Context, unary
from toband.api.request_errors import InvalidFieldError
from toband.domain.hook_model import Hook, HookForm
from toband.domain.identity import Role
from toband.engine.access import call_identity
from toband.engine.access.call_scope import visible, visible_among
from toband.engine.access.failed_logins import source_of
from toband.engine.errors import NotPermittedError, PermissionReason
from toband.engine.hooks.hook_admin import HookAdmin
from toband.engine.hooks.hook_deliveries import Delivered, Delivery, HookDeliveries
from toband.ports import DefinitionStore

_BODY_MOST = MIB
_HEADERS_MOST = 100
_HEADER_BYTES = 32 * 1024
_FORWARDED_CHARS = 100
_FORMS: Mapping[int, HookForm] = {
    pb.HOOK_FORM_UNSPECIFIED: HookForm.GITHUB,
    **{pb.HookForm.Value(f"HOOK_FORM_{form.value}"): form for form in HookForm},
}


class HookService(hook_pb2_grpc.HookServiceServicer):
    def __init__(self, admin: HookAdmin, deliveries: HookDeliveries, store: DefinitionStore) -> None:
        self._admin = admin
        self._deliveries = deliveries
        self._store = store

    @unary
    async def CreateHook(self, request: pb.CreateHookRequest, context: Context) -> pb.CreateHookResponse:
        form = _FORMS.get(request.form)
        if form is None:
            raise InvalidFieldError("form", "must be github or hmac")
        if request.secret and not request.workflow and not identity().has(Role.ADMIN):
            raise NotPermittedError(
                "a hook that emits events may use a stored secret only if an admin creates it: leave `secret` out, and "
                "the hook gets a secret of its own",
                PermissionReason.ROLE,
            )
        hook, secret = await self._admin.create(
            name=request.name,
            workflow=request.workflow,
            event_type=request.event_type,
            form=form,
            secret=request.secret,
            params=dict(request.params),
            conditions=list(request.conditions),
            by=caller(),
        )
        return pb.CreateHookResponse(hook=_message(hook), secret_value=secret)

    @unary
    async def GetHook(self, request: pb.GetHookRequest, context: Context) -> pb.GetHookResponse:
        return pb.GetHookResponse(hook=_message(await self._admin.get(request.name)))

    @unary
    async def ListHooks(self, request: pb.ListHooksRequest, context: Context) -> pb.ListHooksResponse:
        after = pages.last(request.page_token)
        listed = await self._seen([hook for hook in await self._admin.list() if hook.name > after])

        async def read(last: Hook | None, count: int) -> Sequence[Hook]:
            start = listed.index(last) + 1 if last is not None else 0
            return listed[start : start + count]

        async def make(hook: Hook) -> pb.Hook:
            return _message(hook)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListHooksResponse(hooks=page.parts, next_page_token=page.token(attrgetter("name")))

    async def _seen(self, hooks: Sequence[Hook]) -> Sequence[Hook]:
        """Those that the caller may see: for a narrowed one, only hooks of its workflows."""
        if visible() is None:
            return hooks
        seen = await visible_among({hook.workflow for hook in hooks if hook.workflow}, self._store)
        return [hook for hook in hooks if hook.workflow and hook.workflow in seen]

    @unary
    async def DeleteHook(self, request: pb.DeleteHookRequest, context: Context) -> pb.DeleteHookResponse:
        await self._admin.delete(request.name)
        return pb.DeleteHookResponse()

    @unary
    async def DeliverHook(self, request: pb.DeliverHookRequest, context: Context) -> pb.DeliverHookResponse:
        return _answer(await self._deliveries.deliver(_delivery(request)))


def _delivery(request: pb.DeliverHookRequest) -> Delivery:
    """Raises InvalidFieldError."""
    if len(request.body) > _BODY_MOST:
        raise InvalidFieldError("body", f"must have at most {_BODY_MOST} bytes, found {len(request.body)}")
    size = sum(len(name) + len(value) for name, value in request.headers.items())
    if len(request.headers) > _HEADERS_MOST or size > _HEADER_BYTES:
        raise InvalidFieldError("headers", f"must be at most {_HEADERS_MOST}, with {_HEADER_BYTES} bytes together")
    if len(request.forwarded_for) > _FORWARDED_CHARS or not request.forwarded_for.isprintable():
        raise InvalidFieldError("forwarded_for", f"must be at most {_FORWARDED_CHARS} printable characters")
    return Delivery(
        hook=request.name,
        headers={name.lower(): value for name, value in request.headers.items()},
        body=request.body,
        source=source_of(call_identity.peer()),
        forwarded_for=request.forwarded_for,
    )


def _answer(delivered: Delivered) -> pb.DeliverHookResponse:
    answer = pb.DeliverHookResponse(created=delivered.created, ignored=delivered.ignored)
    if delivered.event is not None:
        answer.event_id = delivered.event.id
        for run in delivered.event.runs:
            # A sender learns nothing of others that listen.
            if run.workflow == delivered.hook.workflow:
                answer.run_id = run.run_id
                answer.not_started = run.reason.text if run.reason is not None else ""
    return answer


def _message(hook: Hook) -> pb.Hook:
    made = pb.Hook(
        name=hook.name,
        workflow=hook.workflow,
        event_type=hook.event_type,
        form=pb.HookForm.Value(f"HOOK_FORM_{hook.form.value}"),
        secret=hook.secret,
        params=hook.params,
        conditions=hook.conditions,
        created_by=hook.created_by,
    )
    made.created_at.FromDatetime(hook.created_at)
    return made
