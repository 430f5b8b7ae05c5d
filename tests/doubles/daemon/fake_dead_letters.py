"""Dead letters of the fake daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from doubles.daemon.fake_errors import Context, abort, info
from toban.v1 import dead_letter_pb2, dead_letter_pb2_grpc, run_pb2

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon


class DeadLetters(dead_letter_pb2_grpc.DeadLetterServiceServicer):
    """They come from the test; requeuing one repeats its run."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon

    async def ListDeadLetters(
        self, request: dead_letter_pb2.ListDeadLettersRequest, context: Context
    ) -> dead_letter_pb2.ListDeadLettersResponse:
        async def work() -> dead_letter_pb2.ListDeadLettersResponse:
            found = [
                letter
                for letter in reversed(self._daemon.letters.values())
                if request.workflow in ("", letter.workflow) and (not request.states or letter.state in request.states)
            ]
            begin, size = int(request.page_token or 0), request.page_size or 100
            response = dead_letter_pb2.ListDeadLettersResponse(dead_letters=found[begin : begin + size])
            if begin + size < len(found):
                response.next_page_token = str(begin + size)
            return response

        return await self._daemon.answer("ListDeadLetters", context, request, work)

    async def GetDeadLetter(
        self, request: dead_letter_pb2.GetDeadLetterRequest, context: Context
    ) -> dead_letter_pb2.GetDeadLetterResponse:
        async def work() -> dead_letter_pb2.GetDeadLetterResponse:
            return dead_letter_pb2.GetDeadLetterResponse(dead_letter=await self._existing(request.id, context))

        return await self._daemon.answer("GetDeadLetter", context, request, work)

    async def RequeueDeadLetter(
        self, request: dead_letter_pb2.RequeueDeadLetterRequest, context: Context
    ) -> dead_letter_pb2.RequeueDeadLetterResponse:
        async def work() -> dead_letter_pb2.RequeueDeadLetterResponse:
            letter = await self._existing(request.id, context)
            await self._check_open(letter, context)
            old = self._daemon.runs[letter.run_id].run
            record = self._daemon.add_run(old.workflow, steps=[step.id for step in old.steps])
            record.run.retry_of = old.id
            record.run.triggered_by = run_pb2.TRIGGER_RETRY
            letter.requeued_as = record.run.id
            self._close(letter, dead_letter_pb2.DEAD_LETTER_STATE_REQUEUED)
            return dead_letter_pb2.RequeueDeadLetterResponse(run=record.run, dead_letter=letter)

        return await self._daemon.answer("RequeueDeadLetter", context, request, work)

    async def DiscardDeadLetter(
        self, request: dead_letter_pb2.DiscardDeadLetterRequest, context: Context
    ) -> dead_letter_pb2.DiscardDeadLetterResponse:
        async def work() -> dead_letter_pb2.DiscardDeadLetterResponse:
            letter = await self._existing(request.id, context)
            if letter.state != dead_letter_pb2.DEAD_LETTER_STATE_DISCARDED:
                await self._check_open(letter, context)
                self._close(letter, dead_letter_pb2.DEAD_LETTER_STATE_DISCARDED)
            return dead_letter_pb2.DiscardDeadLetterResponse(dead_letter=letter)

        return await self._daemon.answer("DiscardDeadLetter", context, request, work)

    def _close(
        self,
        letter: dead_letter_pb2.DeadLetter,
        state: dead_letter_pb2.DeadLetterState.ValueType,
    ) -> None:
        letter.state = state
        letter.resolved_by = "uid:1000"
        letter.resolved_at.GetCurrentTime()

    async def _check_open(self, letter: dead_letter_pb2.DeadLetter, context: Context) -> None:
        if letter.state != dead_letter_pb2.DEAD_LETTER_STATE_OPEN:
            await abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                "the dead letter was closed before",
                info("DEAD_LETTER_CLOSED", {"requeued_as": letter.requeued_as}),
            )

    async def _existing(self, letter_id: str, context: Context) -> dead_letter_pb2.DeadLetter:
        if letter_id not in self._daemon.letters:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"no dead letter {letter_id!r}",
                info("DEAD_LETTER_NOT_FOUND", {"dead_letter_id": letter_id}),
            )
        return self._daemon.letters[letter_id]
