"""Decorators of RPC handlers: an exception becomes a gRPC status with details."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar, cast

import grpc
from grpc_status import rpc_status

from toband.api.error_status import status_of

Context = grpc.aio.ServicerContext[Any, Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])


def unary(method: _Method) -> _Method:
    """For a handler with one answer."""
    handler = cast(Callable[[Any, Any, Context], Awaitable[Any]], method)

    @functools.wraps(method)
    async def wrapped(self: Any, request: Any, context: Context) -> Any:
        try:
            return await handler(self, request, context)
        except Exception as error:
            await abort(context, error)

    return cast(_Method, wrapped)


def streaming(method: _Method) -> _Method:
    """For a handler with a stream of answers."""
    handler = cast(Callable[[Any, Any, Context], AsyncIterator[Any]], method)

    @functools.wraps(method)
    async def wrapped(self: Any, request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for answer in handler(self, request, context):
                yield answer
        except Exception as error:
            await abort(context, error)

    return cast(_Method, wrapped)


async def abort(context: Context, error: Exception) -> NoReturn:
    """Ends a call with the status of the error, which is the cause of what this raises."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status = rpc_status.to_status(status_of(error))
    try:
        await cast(Any, context).abort_with_status(status)
    except grpc.aio.AbortError as aborted:
        raise aborted from error
    raise AssertionError("abort_with_status raises")
