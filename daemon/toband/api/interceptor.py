"""Interceptor of every call: wait for a slot of its lane, read the request, handle it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from toband.api.call_limits import Lanes, TooManyCallsError
from toband.api.common_requests import check_texts
from toband.api.handler import Context, abort
from toband.api.request_errors import InvalidFieldError, UnreadableRequestError
from toband.memory_trim import STREAM, Trimmer

_Parse = Callable[[bytes], Any]
_Handler = Any


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls beyond the limits of their lane, and unreadable requests, with the usual error details."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._trimmer = Trimmer()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        lane = self._lanes.of(str(handler_call_details.method))
        try:
            await lane.enter()
        except TooManyCallsError as error:
            return _refusing(handler, error)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        weight = STREAM if handler.response_streaming else 1

        def over(_: object) -> None:
            lane.leave()
            self._trimmer.ended(weight)

        # The task ends with the call, however that ends.
        task.add_done_callback(over)
        return _reading(handler)


def _refusing(handler: _Handler, error: Exception) -> _Handler:
    async def refuse(request: object, context: Context) -> None:
        await abort(context, error)

    # A client sees the same refusal for a call with one answer and for a stream.
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(cast(Any, refuse))
    return grpc.unary_unary_rpc_method_handler(cast(Any, refuse))


def _reading(handler: _Handler) -> _Handler:
    """The handler, with its request read here so that an unreadable request gets an error with details."""
    parse = cast(_Parse, handler.request_deserializer)
    serialize = handler.response_serializer
    if handler.request_streaming:
        many = _many_to_many(handler.stream_stream, parse)
        return grpc.stream_stream_rpc_method_handler(cast(Any, many), None, serialize)
    if handler.response_streaming:
        one = _one_to_many(handler.unary_stream, parse, serialize)
        return grpc.unary_stream_rpc_method_handler(cast(Any, one))
    single = _one_to_one(handler.unary_unary, parse)
    return grpc.unary_unary_rpc_method_handler(cast(Any, single), None, serialize)


def _one_to_one(behavior: Callable[..., Awaitable[Any]], parse: _Parse) -> _Handler:
    async def call(raw: bytes, context: Context) -> Any:
        return await behavior(await _parsed(raw, parse, context), context)

    return call


def _one_to_many(
    behavior: Callable[..., AsyncGenerator[Any]], parse: _Parse, serialize: Callable[[Any], bytes]
) -> _Handler:
    async def call(raw: bytes, context: Context) -> None:
        request = await _parsed(raw, parse, context)
        async with aclosing(behavior(request, context)) as answers:
            # While a reader does not take an answer, only its bytes stay in memory.
            async for data in _serialized(answers, serialize):
                await context.write(data)

    return call


async def _serialized(answers: AsyncIterator[Any], serialize: Callable[[Any], bytes]) -> AsyncIterator[bytes]:
    async for answer in answers:
        data = serialize(answer)
        del answer
        yield data


def _many_to_many(behavior: Callable[..., AsyncIterator[Any]], parse: _Parse) -> _Handler:
    async def call(raws: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
        async def requests() -> AsyncIterator[Any]:
            async for raw in raws:
                yield await _parsed(raw, parse, context)

        async for answer in behavior(requests(), context):
            yield answer

    return call


async def _parsed(raw: bytes, parse: _Parse, context: Context) -> Any:
    try:
        request = parse(raw)
        if b"\0" in raw:
            check_texts(request)
    except (DecodeError, ValueError) as error:
        await abort(context, UnreadableRequestError(str(error)))
    except InvalidFieldError as error:
        await abort(context, error)
    return request
