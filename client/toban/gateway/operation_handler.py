"""Serves an operation: one call of the daemon with the caller's credential."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from toban.gateway.caller_credential import SessionCookie, caller_token
from toban.gateway.daemon_calls import DaemonCalls
from toban.gateway.operation import Operation
from toban.gateway.operation_answer import answer
from toban.gateway.operation_request import read_request
from toban.gateway.problem_details import RefusedRequestError, problem, problem_of
from toban.sdk.errors import InvalidDefinition, TobanError
from toban.v1 import workflow_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

Endpoint = Callable[[Request], Awaitable[Response]]


def refusing(endpoint: Endpoint) -> Endpoint:
    """Turns errors of the gateway and of calls into problem details."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RefusedRequestError as error:
            return problem(error.status, error.reason, str(error))
        except TobanError as error:
            return problem_of(error)

    return guarded


def serve(operation: Operation, calls: DaemonCalls, cookie: SessionCookie) -> Endpoint:
    """The endpoint of an operation."""

    async def endpoint(request: Request) -> Response:
        token = caller_token(request, cookie)
        message = await read_request(operation, request)
        try:
            made = await calls.call(operation.rpc, message, token, operation.within)
        except InvalidDefinition as error:
            raise await _with_all_problems(operation, calls, token, message, error) from None
        return answer(operation, request, made)

    return refusing(endpoint)


async def _with_all_problems(
    operation: Operation, calls: DaemonCalls, token: str, message: Message, error: InvalidDefinition
) -> TobanError:
    """An error has room for some problems only: the rest is asked for."""
    count = error.metadata.get("problems", "")
    if not operation.source or not count.isdigit() or int(count) <= len(error.problems):
        return error
    definition: Any = message
    for name in operation.source.split(".")[:-1]:
        definition = getattr(definition, name)
    request = workflow_pb2.ValidateWorkflowRequest(definition=definition)
    found: workflow_pb2.ValidateWorkflowResponse = await calls.call("WorkflowService/ValidateWorkflow", request, token)
    # A problem that only storing finds, such as a missing job, is not among them.
    problems = found.problems if len(found.problems) > len(error.problems) else error.problems
    return InvalidDefinition(error.message, reason=error.reason, metadata=error.metadata, problems=problems)
