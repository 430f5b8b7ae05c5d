"""DeadLetterService: see proto/toban/v1/dead_letter.proto."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from toban.v1 import dead_letter_pb2 as pb
from toban.v1 import dead_letter_pb2_grpc
from toband.api import pages, run_messages
from toband.api.common_requests import caller, origin_of, request_of
from toband.api.handler import Context, unary
from toband.api.request_errors import InvalidFieldError
from toband.api.run_service import RunService
from toband.domain.run_model import DeadLetter, DeadLetterState
from toband.engine.access.call_scope import visible
from toband.engine.runs.dead_letters import DeadLetters
from toband.ports import DeadLetterStore


class DeadLetterService(dead_letter_pb2_grpc.DeadLetterServiceServicer):
    """`shows` makes the messages of new runs, and knows the plans of runs."""

    def __init__(self, dead_letters: DeadLetters, store: DeadLetterStore, shows: RunService) -> None:
        self._dead_letters = dead_letters
        self._store = store
        self._shows = shows

    @unary
    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Context) -> pb.ListDeadLettersResponse:
        states = [_state(state) for state in request.states]
        first = pages.last(request.page_token)

        async def read(last: DeadLetter | None, count: int) -> Sequence[DeadLetter]:
            before = last.id if last is not None else first
            return await self._store.list_dead_letters(
                workflow=request.workflow, states=states, before=before, limit=count, visible=visible()
            )

        async def make(letter: DeadLetter) -> pb.DeadLetter:
            return await self._message(letter)

        page = await pages.filled(pages.size(request.page_size, 100), read, make)
        return pb.ListDeadLettersResponse(dead_letters=page.parts, next_page_token=page.token(attrgetter("id")))

    @unary
    async def GetDeadLetter(self, request: pb.GetDeadLetterRequest, context: Context) -> pb.GetDeadLetterResponse:
        letter = await self._dead_letters.get(request.id)
        return pb.GetDeadLetterResponse(dead_letter=await self._message(letter))

    @unary
    async def RequeueDeadLetter(
        self, request: pb.RequeueDeadLetterRequest, context: Context
    ) -> pb.RequeueDeadLetterResponse:
        run = await self._dead_letters.requeue(
            request.id,
            caller=caller(),
            request=request_of("RequeueDeadLetter", request, request.request_id),
            origin=origin_of(context),
        )
        return pb.RequeueDeadLetterResponse(
            run=await self._shows.shown(run.id),
            dead_letter=await self._message(await self._dead_letters.get(request.id)),
        )

    @unary
    async def DiscardDeadLetter(
        self, request: pb.DiscardDeadLetterRequest, context: Context
    ) -> pb.DiscardDeadLetterResponse:
        letter = await self._dead_letters.discard(request.id, by=caller())
        return pb.DiscardDeadLetterResponse(dead_letter=await self._message(letter))

    async def _message(self, letter: DeadLetter) -> pb.DeadLetter:
        return run_messages.dead_letter(letter, await self._shows.plan_of(letter.run_id))


def _state(value: pb.DeadLetterState.ValueType) -> DeadLetterState:
    try:
        name = pb.DeadLetterState.Name(value)
        return DeadLetterState(name.removeprefix("DEAD_LETTER_STATE_"))
    except ValueError:
        raise InvalidFieldError("states", f"unknown state {value}") from None
