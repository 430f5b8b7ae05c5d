"""Calls of the DeadLetterService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from functools import cached_property

from toban.sdk.base import Calls, new_request_id, paged
from toban.v1 import dead_letter_pb2, dead_letter_pb2_grpc, run_pb2


class DeadLetterCalls(Calls):
    """Lists, requeues and discards dead letters: steps that failed for good."""

    @cached_property
    def _dead_letters(self) -> dead_letter_pb2_grpc.DeadLetterServiceAsyncStub:
        return dead_letter_pb2_grpc.DeadLetterServiceStub(self._connection.channel)

    def list_dead_letters(
        self,
        *,
        workflow: str = "",
        states: Iterable[dead_letter_pb2.DeadLetterState.ValueType] = (),
        page_size: int = 0,
    ) -> AsyncGenerator[dead_letter_pb2.DeadLetter, None]:
        """Dead letters, newest first."""
        wanted = list(states)

        async def fetch(token: str) -> tuple[list[dead_letter_pb2.DeadLetter], str]:
            answer = await self._connection.call(
                self._dead_letters.ListDeadLetters,
                dead_letter_pb2.ListDeadLettersRequest(
                    workflow=workflow, states=wanted, page_size=page_size, page_token=token
                ),
            )
            return list(answer.dead_letters), answer.next_page_token

        return paged(fetch)

    async def get_dead_letter(self, letter_id: str) -> dead_letter_pb2.DeadLetter:
        """One dead letter. Raises NotFound."""
        answer = await self._connection.call(
            self._dead_letters.GetDeadLetter, dead_letter_pb2.GetDeadLetterRequest(id=letter_id)
        )
        return answer.dead_letter

    async def requeue_dead_letter(self, letter_id: str, *, request_id: str | None = None) -> run_pb2.Run:
        """Starts a new run that repeats the old one from the failed step on.

        Raises NotFound, Conflict `DEAD_LETTER_CLOSED`, and others as `retry_run`.
        """
        answer = await self._connection.call(
            self._dead_letters.RequeueDeadLetter,
            dead_letter_pb2.RequeueDeadLetterRequest(id=letter_id, request_id=new_request_id(request_id)),
        )
        return answer.run

    async def discard_dead_letter(self, letter_id: str) -> dead_letter_pb2.DeadLetter:
        """Discards it. Raises NotFound and Conflict `DEAD_LETTER_CLOSED` if it was requeued; may be repeated."""
        answer = await self._connection.call(
            self._dead_letters.DiscardDeadLetter,
            dead_letter_pb2.DiscardDeadLetterRequest(id=letter_id),
        )
        return answer.dead_letter
