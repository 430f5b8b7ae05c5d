"""Hooks of the fake daemon: stored; a delivery is only noted."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info
from toban.v1 import hook_pb2, hook_pb2_grpc

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon

SECRET = "5e" * 32


class Hooks(hook_pb2_grpc.HookServiceServicer):
    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def CreateHook(self, request: hook_pb2.CreateHookRequest, context: Context) -> hook_pb2.CreateHookResponse:
        async def work() -> hook_pb2.CreateHookResponse:
            if request.name in self._daemon.hooks:
                text = f"hook {request.name!r} already exists"
                await abort(context, grpc.StatusCode.ALREADY_EXISTS, text, info("HOOK_EXISTS", {"hook": request.name}))
            hook = hook_pb2.Hook(
                name=request.name,
                workflow=request.workflow,
                event_type=request.event_type or "HOOK_DELIVERED",
                form=request.form,
                secret=request.secret,
                params=request.params,
                conditions=request.conditions,
                created_by="uid:1000 (aiko)",
            )
            hook.created_at.GetCurrentTime()
            self._daemon.hooks[hook.name] = hook
            return hook_pb2.CreateHookResponse(hook=hook, secret_value="" if request.secret else SECRET)

        return await self._daemon.answer("CreateHook", context, request, work)

    async def GetHook(self, request: hook_pb2.GetHookRequest, context: Context) -> hook_pb2.GetHookResponse:
        async def work() -> hook_pb2.GetHookResponse:
            return hook_pb2.GetHookResponse(hook=await self._found(request.name, context))

        return await self._daemon.answer("GetHook", context, request, work)

    async def ListHooks(self, request: hook_pb2.ListHooksRequest, context: Context) -> hook_pb2.ListHooksResponse:
        async def work() -> hook_pb2.ListHooksResponse:
            found = [hook for _, hook in sorted(self._daemon.hooks.items())]
            begin, size = int(request.page_token or 0), request.page_size or 100
            more = str(begin + size) if begin + size < len(found) else ""
            return hook_pb2.ListHooksResponse(hooks=found[begin : begin + size], next_page_token=more)

        return await self._daemon.answer("ListHooks", context, request, work)

    async def DeleteHook(self, request: hook_pb2.DeleteHookRequest, context: Context) -> hook_pb2.DeleteHookResponse:
        async def work() -> hook_pb2.DeleteHookResponse:
            del self._daemon.hooks[(await self._found(request.name, context)).name]
            return hook_pb2.DeleteHookResponse()

        return await self._daemon.answer("DeleteHook", context, request, work)

    async def DeliverHook(self, request: hook_pb2.DeliverHookRequest, context: Context) -> hook_pb2.DeliverHookResponse:
        async def work() -> hook_pb2.DeliverHookResponse:
            if request.name not in self._daemon.hooks:
                text = "the credential is not valid"
                await abort(context, grpc.StatusCode.UNAUTHENTICATED, text, info("CREDENTIAL_INVALID"))
            return hook_pb2.DeliverHookResponse(event_id=str(uuid.uuid4()), created=True)

        return await self._daemon.answer("DeliverHook", context, request, work)

    async def _found(self, name: str, context: Context) -> hook_pb2.Hook:
        hook = self._daemon.hooks.get(name)
        if hook is None:
            text = f"there is no hook {name!r}: create it with 'toban hooks create {name}'"
            await abort(context, grpc.StatusCode.NOT_FOUND, text, info("HOOK_NOT_FOUND", {"hook": name}))
        return hook
