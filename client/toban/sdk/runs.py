"""Calls of the RunService, and streams that survive a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import grpc.aio

from toban.sdk.base import Calls, new_request_id, paged
from toban.sdk.connection import Metadata
from toban.sdk.message_values import to_struct, to_timestamp
from toban.v1 import run_pb2, run_pb2_grpc

# Seconds for which a stream tries to reconnect.
RECONNECT: Final = 60.0

TERMINAL: Final = frozenset(
    {
        run_pb2.RUN_STATE_SUCCEEDED,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_TIMED_OUT,
        run_pb2.RUN_STATE_CANCELLED,
    }
)

# Steps per page when a whole run is fetched.
_STEP_PAGE: Final = 1000


class RunCalls(Calls):
    """Starts, controls and reads runs."""

    @cached_property
    def _runs(self) -> run_pb2_grpc.RunServiceAsyncStub:
        return run_pb2_grpc.RunServiceStub(self._connection.channel)

    async def start_run(
        self,
        workflow: str,
        params: Mapping[str, Any] | None = None,
        *,
        triggered_by: run_pb2.Trigger.ValueType = run_pb2.TRIGGER_API,
        scope: str = "",
        only: Iterable[str] = (),
        from_steps: Iterable[str] = (),
        from_run: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> run_pb2.Run:
        """Stores a run and starts it. Raises NotFound, Conflict `RUN_ALREADY_ACTIVE` and InvalidArgument.

        `scope`, `only` (these steps) and `from_steps` (these and their dependents) select a part of the workflow.
        Results of other steps that the part uses come from the run `from_run`, else from the newest run in which they
        succeeded; Conflict `NO_PRIOR_RESULT` if there is none.
        """
        answer = await self._connection.call(
            self._runs.StartRun,
            run_pb2.StartRunRequest(
                workflow=workflow,
                params=to_struct(params or {}),
                triggered_by=triggered_by,
                scope=scope,
                only=list(only),
                from_steps=list(from_steps),
                from_run=from_run,
                labels=labels or {},
                request_id=new_request_id(request_id),
            ),
        )
        return answer.run

    async def plan_run(
        self,
        workflow: str,
        params: Mapping[str, Any] | None = None,
        *,
        scope: str = "",
        only: Iterable[str] = (),
        from_steps: Iterable[str] = (),
        from_run: str = "",
    ) -> run_pb2.PlanRunResponse:
        """The steps that `start_run` would run, in order; starts nothing. Raises NotFound, Conflict and
        InvalidArgument.
        """
        return await self._connection.call(
            self._runs.PlanRun,
            run_pb2.PlanRunRequest(
                workflow=workflow,
                params=to_struct(params or {}),
                scope=scope,
                only=list(only),
                from_steps=list(from_steps),
                from_run=from_run,
            ),
        )

    async def retry_run(self, /, run_id: str, **how: Any) -> run_pb2.Run:
        """Starts a new run that repeats what failed in an ended one. Takes and raises the same as `start_retry`."""
        return (await self.start_retry(run_id, **how)).run

    async def start_retry(
        self,
        run_id: str,
        *,
        from_steps: Iterable[str] = (),
        everything: bool = False,
        newest_version: bool = False,
        params: Mapping[str, Any] | None = None,
        skip: Iterable[str] = (),
        skip_note: str = "",
        request_id: str | None = None,
    ) -> run_pb2.RetryRunResponse:
        """Starts a new run that repeats the steps that did not succeed, all from `from_steps` on, or `everything`.

        `params` replace parameters of the run. Steps in `skip` count as succeeded; `skip_note` says
        why. `newer_version` of the answer is above zero if the workflow has a version that the run does not use.
        Raises NotFound, InvalidArgument `UNKNOWN_STEP` and `INVALID_PARAMS`, and Conflict: `RUN_NOT_TERMINAL`,
        `NOTHING_TO_RETRY`, `STEP_NOT_SKIPPABLE`, `NO_PRIOR_RESULT`, `RUN_ALREADY_ACTIVE`.
        """
        return await self._connection.call(
            self._runs.RetryRun,
            run_pb2.RetryRunRequest(
                id=run_id,
                from_steps=list(from_steps),
                everything=everything,
                newest_version=newest_version,
                params=to_struct(params or {}),
                skip=list(skip),
                skip_note=skip_note,
                request_id=new_request_id(request_id),
            ),
        )

    async def get_run(self, run_id: str) -> run_pb2.Run:
        """One run with all of its steps. Raises NotFound."""
        run: run_pb2.Run | None = None
        token = ""
        while True:
            answer = await self._connection.call(
                self._runs.GetRun,
                run_pb2.GetRunRequest(id=run_id, step_page_size=_STEP_PAGE, step_page_token=token),
            )
            if run is None:
                run = answer.run
            else:
                run.steps.extend(answer.run.steps)
            token = answer.next_step_page_token
            if not token:
                return run

    async def get_current_run(self, workflow: str) -> run_pb2.Run:
        """The active run of a workflow, else its latest one. Raises NotFound."""
        answer = await self._connection.call(self._runs.GetCurrentRun, run_pb2.GetCurrentRunRequest(workflow=workflow))
        return answer.run

    def list_runs(
        self,
        *,
        workflow: str = "",
        states: Iterable[run_pb2.RunState.ValueType] = (),
        parent_run: str = "",
        retry_of: str = "",
        labels: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        text: str = "",
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        number: int = 0,
        ids: Iterable[str] = (),
        page_size: int = 0,
    ) -> AsyncGenerator[run_pb2.Run, None]:
        """Runs, newest first, without their steps: those that match everything that is given.

        `number` needs `workflow`, and `ids` are at most 500. `params` are values as text. With `params` or `text` each
        call examines a limited number of runs, so that a search for few of many runs takes many calls.
        """
        wanted, of_ids = list(states), list(ids)

        async def fetch(token: str) -> tuple[list[run_pb2.Run], str]:
            answer = await self._connection.call(
                self._runs.ListRuns,
                run_pb2.ListRunsRequest(
                    workflow=workflow,
                    states=wanted,
                    parent_run=parent_run,
                    retry_of=retry_of,
                    labels=labels or {},
                    params=params or {},
                    text=text,
                    created_after=None if created_after is None else to_timestamp(created_after),
                    created_before=None if created_before is None else to_timestamp(created_before),
                    number=number,
                    ids=of_ids,
                    page_size=page_size,
                    page_token=token,
                ),
            )
            return list(answer.runs), answer.next_page_token

        return paged(fetch)

    async def find_ids(self, kind: run_pb2.IdKind.ValueType, part: str) -> list[str]:
        """Ids that begin with `part`, of at least 4 characters, or else that end with it: newest first, at most 10."""
        request = run_pb2.FindIdsRequest(kind=kind, part=part)
        return list((await self._connection.call(self._runs.FindIds, request)).ids)

    async def cancel_run(self, run_id: str, *, reason: str = "") -> run_pb2.Run:
        """Requests the cancellation of a run. Raises NotFound and Conflict `RUN_ALREADY_TERMINAL`.

        The run goes on with its `finally` steps. A second call ends those too, once they have begun.
        """
        request = run_pb2.CancelRunRequest(id=run_id, reason=reason)

        def repeated() -> None:
            request.is_retry = True

        answer = await self._connection.call(self._runs.CancelRun, request, repeated=repeated)
        return answer.run

    async def pause_run(self, run_id: str) -> run_pb2.Run:
        """Starts no further steps of a run. Raises NotFound and Conflict `RUN_ALREADY_TERMINAL`; may be repeated."""
        answer = await self._connection.call(self._runs.PauseRun, run_pb2.PauseRunRequest(id=run_id))
        return answer.run

    async def resume_run(self, run_id: str) -> run_pb2.Run:
        """Resumes a paused run. Raises NotFound and Conflict `RUN_ALREADY_TERMINAL`; may be repeated."""
        answer = await self._connection.call(self._runs.ResumeRun, run_pb2.ResumeRunRequest(id=run_id))
        return answer.run

    async def decide_approval(self, run_id: str, step: str, *, approved: bool, note: str = "") -> run_pb2.Run:
        """Approves or rejects a step that waits for approval; a rejected step fails.

        Raises NotFound, Conflict `STEP_NOT_WAITING`, and Refused `NOT_AN_APPROVER`. Safe to repeat.
        """
        decision = run_pb2.APPROVAL_DECISION_APPROVED if approved else run_pb2.APPROVAL_DECISION_REJECTED
        answer = await self._connection.call(
            self._runs.DecideApproval,
            run_pb2.DecideApprovalRequest(run_id=run_id, step=step, decision=decision, note=note),
        )
        return answer.run

    async def delete_run(self, run_id: str) -> None:
        """Deletes an ended run, its logs and artifacts. Raises NotFound, Conflict `RUN_NOT_TERMINAL`, `RUN_IN_USE`,
        `RUN_PINNED`."""
        await self._connection.delete(self._runs.DeleteRun, run_pb2.DeleteRunRequest(id=run_id))

    async def pin_run(self, run_id: str, *, note: str = "") -> run_pb2.Run:
        """Keeps a run from retention and deletion, whatever its state. Raises NotFound; may be repeated."""
        answer = await self._connection.call(self._runs.PinRun, run_pb2.PinRunRequest(id=run_id, note=note))
        return answer.run

    async def unpin_run(self, run_id: str) -> run_pb2.Run:
        """Removes the pin of a run. Raises NotFound; may be repeated."""
        answer = await self._connection.call(self._runs.UnpinRun, run_pb2.UnpinRunRequest(id=run_id))
        return answer.run

    async def watch_run(
        self, run_id: str, *, after_sequence: int = 0, reconnect: float = RECONNECT
    ) -> AsyncGenerator[run_pb2.WatchRunResponse, None]:
        """First the whole run in one message, with any number of steps, then each change; ends with the run.

        Resumes after a restart of the daemon, without losing or repeating a change. Raises NotFound, and Unreachable
        when the daemon is unavailable for `reconnect` seconds.
        """
        sequence = after_sequence
        seen = sequence
        over = False
        picture: run_pb2.WatchRunResponse | None = None

        def open_stream(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, run_pb2.WatchRunResponse]:
            nonlocal picture, seen
            # Drop an incomplete snapshot: the next stream starts with a whole one.
            picture = None
            seen = sequence
            request = run_pb2.WatchRunRequest(id=run_id, after_sequence=sequence)
            return self._runs.WatchRun(request, metadata=metadata)

        messages = self._connection.stream(open_stream, ended=lambda _: over, reconnect=reconnect)
        async with aclosing(messages):
            async for message in messages:
                progress = message.change == run_pb2.RUN_CHANGE_KIND_PROGRESS_REPORTED
                if seen and message.sequence <= seen and not progress:
                    continue
                if picture is not None:
                    picture.run.steps.extend(message.run.steps)
                    picture.sequence, picture.partial = message.sequence, message.partial
                    message = picture
                if message.partial:
                    picture = message
                    continue
                picture = None
                sequence = message.sequence
                over = message.run.state in TERMINAL
                yield message

    async def watch_runs(
        self,
        *,
        workflow: str = "",
        states: Iterable[run_pb2.RunState.ValueType] = (),
        parent_run: str = "",
        retry_of: str = "",
        labels: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        text: str = "",
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        number: int = 0,
        ids: Iterable[str] = (),
        position: str = "",
        only_changes: bool = False,
        reconnect: float = RECONNECT,
    ) -> AsyncGenerator[run_pb2.WatchRunsResponse, None]:
        """First the active runs that match, then a message without a run, then each change of a run that matches.

        Conditions are those of `list_runs`, and apply to the run after the change. A later call continues after any
        message with its `position`; a message without a run has only that. `only_changes` leaves the active runs out.
        Resumes after a restart of the daemon, without losing or repeating a change. Raises Unreachable when the daemon
        is unavailable for `reconnect` seconds.
        """
        request = run_pb2.WatchRunsRequest(
            workflow=workflow,
            states=list(states),
            parent_run=parent_run,
            retry_of=retry_of,
            labels=labels or {},
            params=params or {},
            text=text,
            created_after=None if created_after is None else to_timestamp(created_after),
            created_before=None if created_before is None else to_timestamp(created_before),
            number=number,
            ids=list(ids),
            position=position,
            only_changes=only_changes,
        )

        def open_stream(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, run_pb2.WatchRunsResponse]:
            return self._runs.WatchRuns(request, metadata=metadata)

        messages = self._connection.stream(open_stream, ended=lambda _: False, reconnect=reconnect)
        async with aclosing(messages):
            async for message in messages:
                request.position = message.position
                yield message

    async def wait_run(
        self,
        run_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the blocking client has no other way
        reconnect: float = RECONNECT,
    ) -> run_pb2.Run:
        """The run with all of its steps once it has ended. Raises NotFound, TimeoutError and Unreachable."""
        async with (
            asyncio.timeout(timeout),
            aclosing(self.watch_run(run_id, reconnect=reconnect)) as changes,
        ):
            async for _ in changes:
                pass
        return await self.get_run(run_id)
