"""The blocking client: runs the asynchronous one on its own event loop, in its own thread.

No call is written twice: each method here is generated from the client's method of the same name.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from toban.sdk.address import Address
from toban.sdk.client import Client

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

_END: Final = object()

_PATIENCE: Final = 0.2
"""Seconds between checks for Ctrl-C: a signal does not always end a wait, on Windows never."""


def _blocking(
    method: Callable[Concatenate[Client, _P], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[SyncClient, _P], _Result]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        return self._wait(lambda: method(self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[Client, _P], AsyncGenerator[_Item, None]],
) -> Callable[Concatenate[SyncClient, _P], Generator[_Item, None, None]]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_Item, None, None]:
        return self._iterate(method(self._client, *args, **kwargs))

    return call


class SyncClient:
    """The same methods as Client, blocking; streams and lists are generators.

    May be used from several threads.

        with SyncClient() as toban:
            for run in toban.list_runs(workflow="nightly-report"):
                print(run.id)
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        timeout: float = 30.0,
        retry_for: float = 10.0,
        connect_for: float | None = None,
    ) -> None:
        self._client = Client(server, timeout=timeout, retry_for=retry_for, connect_for=connect_for)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def address(self) -> Address:
        """The daemon's address."""
        return self._client.address

    create_workflow = _blocking(Client.create_workflow)
    update_workflow = _blocking(Client.update_workflow)
    apply_definitions = _blocking(Client.apply_definitions)
    get_workflow = _blocking(Client.get_workflow)
    list_workflows = _iterating(Client.list_workflows)
    delete_workflow = _blocking(Client.delete_workflow)
    validate_workflow = _blocking(Client.validate_workflow)
    list_workflow_versions = _iterating(Client.list_workflow_versions)
    get_workflow_version = _blocking(Client.get_workflow_version)
    restore_workflow_version = _blocking(Client.restore_workflow_version)
    set_workflow_enabled = _blocking(Client.set_workflow_enabled)
    preview_schedule = _blocking(Client.preview_schedule)
    backfill_schedule = _blocking(Client.backfill_schedule)
    explain_schedule = _blocking(Client.explain_schedule)
    list_fires = _iterating(Client.list_fires)

    create_job = _blocking(Client.create_job)
    update_job = _blocking(Client.update_job)
    get_job = _blocking(Client.get_job)
    list_jobs = _iterating(Client.list_jobs)
    delete_job = _blocking(Client.delete_job)
    set_job_enabled = _blocking(Client.set_job_enabled)
    run_job = _blocking(Client.run_job)

    start_run = _blocking(Client.start_run)
    plan_run = _blocking(Client.plan_run)
    retry_run = _blocking(Client.retry_run)
    start_retry = _blocking(Client.start_retry)
    get_run = _blocking(Client.get_run)
    get_current_run = _blocking(Client.get_current_run)
    list_runs = _iterating(Client.list_runs)
    cancel_run = _blocking(Client.cancel_run)
    pause_run = _blocking(Client.pause_run)
    resume_run = _blocking(Client.resume_run)
    decide_approval = _blocking(Client.decide_approval)
    delete_run = _blocking(Client.delete_run)
    pin_run = _blocking(Client.pin_run)
    unpin_run = _blocking(Client.unpin_run)
    watch_run = _iterating(Client.watch_run)
    wait_run = _blocking(Client.wait_run)
    stream_logs = _iterating(Client.stream_logs)
    list_process_executions = _iterating(Client.list_process_executions)
    get_process_execution = _blocking(Client.get_process_execution)
    list_artifacts = _iterating(Client.list_artifacts)
    download_artifact = _iterating(Client.download_artifact)

    emit_event = _blocking(Client.emit_event)
    get_event = _blocking(Client.get_event)
    list_events = _iterating(Client.list_events)
    watch_events = _iterating(Client.watch_events)
    resolve_event = _blocking(Client.resolve_event)

    create_schedule = _blocking(Client.create_schedule)
    get_schedule = _blocking(Client.get_schedule)
    list_schedules = _iterating(Client.list_schedules)
    cancel_schedule = _blocking(Client.cancel_schedule)
    cancel_by_subject = _blocking(Client.cancel_by_subject)
    interpret_time = _blocking(Client.interpret_time)

    list_dead_letters = _iterating(Client.list_dead_letters)
    get_dead_letter = _blocking(Client.get_dead_letter)
    requeue_dead_letter = _blocking(Client.requeue_dead_letter)
    discard_dead_letter = _blocking(Client.discard_dead_letter)

    get_info = _blocking(Client.get_info)
    get_config = _blocking(Client.get_config)
    doctor = _blocking(Client.doctor)
    collect_garbage = _blocking(Client.collect_garbage)
    drain = _blocking(Client.drain)
    list_locks = _blocking(Client.list_locks)
    release_lock = _blocking(Client.release_lock)
    reload = _blocking(Client.reload)
    resume = _blocking(Client.resume)

    def run_async(self, work: Callable[[Client], Coroutine[Any, Any, _Result]]) -> _Result:
        """Runs `work` with the asynchronous client, on the same connection, and waits for its result."""
        return self._wait(lambda: work(self._client))

    def close(self) -> None:
        """Ends every stream, closes the connection and ends the thread. May be repeated."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        _Call(self._client.close).wait(loop)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, begin: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        return _Call(begin).wait(self._started())

    def _iterate(self, items: AsyncGenerator[_Item, None]) -> Generator[_Item, None, None]:
        step: asyncio.Task[Any] | None = None

        async def following() -> _Item | object:
            nonlocal step
            step = asyncio.current_task()
            return await anext(items, _END)

        async def closing() -> None:
            # Ctrl-C may have left a step of the generator running; a running generator cannot be closed.
            if step is not None and not step.done():
                step.cancel()
                await asyncio.wait([step])
            await items.aclose()

        try:
            while (item := self._wait(following)) is not _END:
                yield item  # type: ignore[misc]
        finally:
            if not self._closed:
                self._wait(closing)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="toban-sdk", daemon=True)
                self._thread.start()
            return self._loop


class _Call(Generic[_Result]):
    """Runs a coroutine in the loop's thread, for another thread that waits for it.

    Ctrl-C may interrupt the waiting thread anywhere. So the coroutine is created where it is awaited, and the thread
    waits on a queue: the lock of a future's condition would not survive the interrupt.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _Result]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[_Result] | None = None
        self._ended: SimpleQueue[asyncio.Task[_Result]] = SimpleQueue()

    def wait(self, loop: asyncio.AbstractEventLoop) -> _Result:
        loop.call_soon_threadsafe(self._start)
        try:
            task = self._result()
        except BaseException:
            # Cancel work that no thread waits for any more.
            loop.call_soon_threadsafe(self._give_up)
            raise
        if task.cancelled():
            raise CancelledError
        return task.result()

    def _result(self) -> asyncio.Task[_Result]:
        while True:
            with suppress(Empty):
                return self._ended.get(timeout=_PATIENCE)

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._end)

    async def _work(self) -> _Result:
        return await self._begin()

    def _end(self, task: asyncio.Task[_Result]) -> None:
        if not task.cancelled():
            # Read the exception here: asyncio complains about an exception that was never retrieved.
            task.exception()
        self._ended.put(task)

    def _give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
