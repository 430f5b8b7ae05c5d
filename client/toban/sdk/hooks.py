"""Calls of the HookService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import cached_property

from toban.sdk.base import Calls, paged
from toban.v1 import hook_pb2, hook_pb2_grpc


class HookCalls(Calls):
    """Creates, lists and deletes hooks, and hands deliveries to the daemon."""

    @cached_property
    def _hooks(self) -> hook_pb2_grpc.HookServiceAsyncStub:
        return hook_pb2_grpc.HookServiceStub(self._connection.channel)

    async def create_hook(
        self,
        name: str,
        *,
        workflow: str = "",
        event_type: str = "",
        form: hook_pb2.HookForm.ValueType = hook_pb2.HOOK_FORM_GITHUB,
        secret: str = "",
        params: Mapping[str, str] | None = None,
        conditions: Iterable[str] = (),
    ) -> hook_pb2.CreateHookResponse:
        """Creates a hook that starts `workflow` or emits events of `event_type`.

        `params` are paths in the delivery, such as `body.ref`. Without `secret`, the name of a stored one, the answer
        has a new secret for the only time. Raises InvalidArgument, NotFound, PermissionDenied, and Conflict
        `HOOK_EXISTS`, also if the hook was created and the answer with its secret was lost.
        """
        request = hook_pb2.CreateHookRequest(
            name=name,
            workflow=workflow,
            event_type=event_type,
            form=form,
            secret=secret,
            params=params or {},
            conditions=conditions,
        )
        return await self._connection.call(self._hooks.CreateHook, request)

    async def get_hook(self, name: str) -> hook_pb2.Hook:
        """A hook without its secret. Raises NotFound."""
        return (await self._connection.call(self._hooks.GetHook, hook_pb2.GetHookRequest(name=name))).hook

    def list_hooks(self, *, page_size: int = 0) -> AsyncGenerator[hook_pb2.Hook, None]:
        """Hooks by name, without their secrets."""

        async def fetch(token: str) -> tuple[list[hook_pb2.Hook], str]:
            request = hook_pb2.ListHooksRequest(page_size=page_size, page_token=token)
            answer = await self._connection.call(self._hooks.ListHooks, request)
            return list(answer.hooks), answer.next_page_token

        return paged(fetch)

    async def delete_hook(self, name: str) -> None:
        """Deletes a hook: deliveries to it are refused from now on. Raises NotFound."""
        await self._connection.delete(self._hooks.DeleteHook, hook_pb2.DeleteHookRequest(name=name))

    async def deliver_hook(
        self, name: str, headers: Mapping[str, str], body: bytes, *, forwarded_for: str = ""
    ) -> hook_pb2.DeliverHookResponse:
        """Hands a delivery to the daemon, as it came over HTTP. It may be repeated: it counts once.

        Its signature is its only credential; this client's counts for nothing. Raises Unauthenticated, InvalidArgument.
        """
        request = hook_pb2.DeliverHookRequest(name=name, headers=headers, body=body, forwarded_for=forwarded_for)
        return await self._connection.call(self._hooks.DeliverHook, request)
