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
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from toban.sdk.address import Address
from toban.sdk.client import Client
from toban.sdk.credentials import Pem

if TYPE_CHECKING:
    from toban.sdk.run_handle import Run
    from toban.sdk.sync_run import SyncRun

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")
_Target = TypeVar("_Target")
_Target_co = TypeVar("_Target_co", covariant=True)

_END: Final = object()

_PATIENCE: Final = 0.2
"""Seconds between checks for Ctrl-C: a signal does not always end a wait, on Windows never."""


class Blocking(Generic[_Target_co]):
    """Does what an asynchronous object does, and waits for it: see `blocking` and its like."""

    _target: _Target_co

    @property
    def _owner(self) -> SyncClient:
        """The client with the event loop."""
        raise NotImplementedError

    def _handle(self, run: Run) -> SyncRun:
        """The blocking form of a run."""
        from toban.sdk.sync_run import SyncRun  # not needed by all programs

        return SyncRun(self._owner, run)


def blocking(
    method: Callable[Concatenate[_Target, _P], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Blocking[_Target], _P], _Result]:
    """The method, blocking."""

    @functools.wraps(method)
    def call(self: Blocking[_Target], /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        return self._owner._wait(lambda: method(self._target, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[_Target, _P], AsyncGenerator[_Item, None]],
) -> Callable[Concatenate[Blocking[_Target], _P], Generator[_Item, None, None]]:
    """The asynchronous generator as a generator."""

    @functools.wraps(method)
    def call(self: Blocking[_Target], /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_Item, None, None]:
        return self._owner._iterate(method(self._target, *args, **kwargs))

    return call


def returning_run(
    method: Callable[Concatenate[_Target, _P], Coroutine[Any, Any, Run]],
) -> Callable[Concatenate[Blocking[_Target], _P], SyncRun]:
    """The method, blocking, with a run that blocks too."""

    @functools.wraps(method)
    def call(self: Blocking[_Target], /, *args: _P.args, **kwargs: _P.kwargs) -> SyncRun:
        return self._handle(self._owner._wait(lambda: method(self._target, *args, **kwargs)))

    return call


def yielding_runs(
    method: Callable[Concatenate[_Target, _P], AsyncGenerator[Run, None]],
) -> Callable[Concatenate[Blocking[_Target], _P], Generator[SyncRun, None, None]]:
    """The asynchronous generator as a generator, of runs that block too."""

    @functools.wraps(method)
    def call(self: Blocking[_Target], /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[SyncRun, None, None]:
        runs = self._owner._iterate(method(self._target, *args, **kwargs))
        try:
            for run in runs:
                yield self._handle(run)
        finally:
            runs.close()

    return call


class SyncClient(Blocking[Client]):
    """The same methods as Client, blocking; streams and lists are generators.

    May be used from several threads.

        with SyncClient() as toban:
            for run in toban.find_runs(workflow="nightly-report"):
                print(run.name, run.state)
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        context: str | None = None,
        token: str = "",
        token_file: str = "",
        ca: Pem = b"",
        certificate: Pem = b"",
        key: Pem = b"",
        timeout: float = 30.0,
        retry_for: float = 10.0,
        connect_for: float | None = None,
    ) -> None:
        self._target = Client(
            server,
            context=context,
            token=token,
            token_file=token_file,
            ca=ca,
            certificate=certificate,
            key=key,
            timeout=timeout,
            retry_for=retry_for,
            connect_for=connect_for,
        )
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def address(self) -> Address:
        """The daemon's address."""
        return self._target.address

    @property
    def _owner(self) -> SyncClient:
        return self

    create_workflow = blocking(Client.create_workflow)
    update_workflow = blocking(Client.update_workflow)
    apply_definitions = blocking(Client.apply_definitions)
    get_workflow = blocking(Client.get_workflow)
    list_workflows = iterating(Client.list_workflows)
    list_workflow_summaries = iterating(Client.list_workflow_summaries)
    get_overview = blocking(Client.get_overview)
    delete_workflow = blocking(Client.delete_workflow)
    validate_workflow = blocking(Client.validate_workflow)
    list_workflow_versions = iterating(Client.list_workflow_versions)
    get_workflow_version = blocking(Client.get_workflow_version)
    restore_workflow_version = blocking(Client.restore_workflow_version)
    set_workflow_enabled = blocking(Client.set_workflow_enabled)
    preview_schedule = blocking(Client.preview_schedule)
    backfill_schedule = blocking(Client.backfill_schedule)
    explain_schedule = blocking(Client.explain_schedule)
    list_fires = iterating(Client.list_fires)

    create_job = blocking(Client.create_job)
    update_job = blocking(Client.update_job)
    get_job = blocking(Client.get_job)
    list_jobs = iterating(Client.list_jobs)
    delete_job = blocking(Client.delete_job)
    set_job_enabled = blocking(Client.set_job_enabled)
    run_job = blocking(Client.run_job)

    run = returning_run(Client.run)
    find_run = returning_run(Client.find_run)
    find_runs = yielding_runs(Client.find_runs)

    start_run = blocking(Client.start_run)
    plan_run = blocking(Client.plan_run)
    retry_run = blocking(Client.retry_run)
    start_retry = blocking(Client.start_retry)
    get_run = blocking(Client.get_run)
    get_current_run = blocking(Client.get_current_run)
    list_runs = iterating(Client.list_runs)
    find_ids = blocking(Client.find_ids)
    cancel_run = blocking(Client.cancel_run)
    pause_run = blocking(Client.pause_run)
    resume_run = blocking(Client.resume_run)
    decide_approval = blocking(Client.decide_approval)
    delete_run = blocking(Client.delete_run)
    pin_run = blocking(Client.pin_run)
    unpin_run = blocking(Client.unpin_run)
    watch_run = iterating(Client.watch_run)
    watch_runs = iterating(Client.watch_runs)
    wait_run = blocking(Client.wait_run)
    read_log = blocking(Client.read_log)
    search_logs = iterating(Client.search_logs)
    stream_logs = iterating(Client.stream_logs)
    list_process_executions = iterating(Client.list_process_executions)
    get_process_execution = blocking(Client.get_process_execution)
    list_artifacts = iterating(Client.list_artifacts)
    download_artifact = iterating(Client.download_artifact)

    emit_event = blocking(Client.emit_event)
    get_event = blocking(Client.get_event)
    list_events = iterating(Client.list_events)
    watch_events = iterating(Client.watch_events)
    resolve_event = blocking(Client.resolve_event)

    create_schedule = blocking(Client.create_schedule)
    get_schedule = blocking(Client.get_schedule)
    list_schedules = iterating(Client.list_schedules)
    cancel_schedule = blocking(Client.cancel_schedule)
    cancel_by_subject = blocking(Client.cancel_by_subject)
    interpret_time = blocking(Client.interpret_time)

    list_dead_letters = iterating(Client.list_dead_letters)
    get_dead_letter = blocking(Client.get_dead_letter)
    requeue_dead_letter = blocking(Client.requeue_dead_letter)
    discard_dead_letter = blocking(Client.discard_dead_letter)

    set_secret = blocking(Client.set_secret)
    set_provided_secret = blocking(Client.set_provided_secret)
    get_secret = blocking(Client.get_secret)
    list_secrets = iterating(Client.list_secrets)
    delete_secret = blocking(Client.delete_secret)
    grant_secret = blocking(Client.grant_secret)
    revoke_secret_grant = blocking(Client.revoke_secret_grant)
    rotate_secrets_key = blocking(Client.rotate_secrets_key)
    count_runs_by_day = blocking(Client.count_runs_by_day)
    list_run_grid = blocking(Client.list_run_grid)
    get_event_chain = blocking(Client.get_event_chain)
    create_hook = blocking(Client.create_hook)
    get_hook = blocking(Client.get_hook)
    list_hooks = iterating(Client.list_hooks)
    delete_hook = blocking(Client.delete_hook)
    deliver_hook = blocking(Client.deliver_hook)

    get_info = blocking(Client.get_info)
    get_config = blocking(Client.get_config)
    doctor = blocking(Client.doctor)
    collect_garbage = blocking(Client.collect_garbage)
    drain = blocking(Client.drain)
    backup = iterating(Client.backup)
    list_locks = blocking(Client.list_locks)
    release_lock = blocking(Client.release_lock)
    reload = blocking(Client.reload)
    reload_config = blocking(Client.reload_config)
    resume = blocking(Client.resume)

    who_am_i = blocking(Client.who_am_i)
    get_access = blocking(Client.get_access)
    create_token = blocking(Client.create_token)
    list_tokens = iterating(Client.list_tokens)
    revoke_token = blocking(Client.revoke_token)
    create_session = blocking(Client.create_session)
    list_sessions = iterating(Client.list_sessions)
    revoke_session = blocking(Client.revoke_session)
    list_audit_entries = iterating(Client.list_audit_entries)
    verify_audit = blocking(Client.verify_audit)

    def run_async(self, work: Callable[[Client], Coroutine[Any, Any, _Result]]) -> _Result:
        """Runs `work` with the asynchronous client, on the same connection, and waits for its result."""
        return self._wait(lambda: work(self._target))

    def close(self) -> None:
        """Ends every stream, closes the connection and ends the thread. May be repeated."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        _Call(self._target.close).wait(loop)
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
