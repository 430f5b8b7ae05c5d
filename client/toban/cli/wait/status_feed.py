"""What `toban status --watch` shows: read again after changes of runs, while another thread draws it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from toban.sdk import Refused, TobanError

if TYPE_CHECKING:
    from toban.cli.render.status_report import Status
    from toban.sdk import Client, SyncClient

StatusReader: TypeAlias = "Callable[[Client], Coroutine[Any, Any, Status]]"

# Changes in between are read together.
_PACE: Final = 0.4
# After an error, for example while the daemon restarts.
_AGAIN: Final = 0.5


class StatusFeed:
    """`news` is set after each reading, and after an error that ends the feed."""

    def __init__(self, read: StatusReader, first: Status, every: float) -> None:
        self._read = read
        self._latest = first
        self._every = every
        self._failure: BaseException | None = None
        self._asked_at = math.inf
        self.news = threading.Event()

    def latest(self) -> Status:
        """Raises the error that ended the feed."""
        if self._failure is not None:
            raise self._failure
        return self._latest

    def unanswered_for(self) -> float:
        """Seconds since the daemon was first asked and did not answer."""
        return max(time.monotonic() - self._asked_at, 0.0)

    def start(self, client: SyncClient) -> None:
        """Reads in the background until the client is closed."""

        def run() -> None:
            try:
                with suppress(CancelledError):
                    client.run_async(self._follow)
            except BaseExceptionGroup as group:
                self._failure = group.exceptions[0]
            except Exception as error:
                self._failure = error
            self.news.set()

        threading.Thread(target=run, name="toban-status", daemon=True).start()

    async def _follow(self, client: Client) -> None:
        """The first message of a stream causes a reading, too: no change before it is missed."""
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(client, changed))
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every):
                        await changed.wait()
                changed.clear()
                await self._look(client)
                await asyncio.sleep(_PACE)

    async def _look(self, client: Client) -> None:
        self._asked_at = time.monotonic()
        while True:
            try:
                self._latest = await self._read(client)
            except TobanError as error:
                if isinstance(error, Refused):
                    raise
                await asyncio.sleep(_AGAIN)
            else:
                self._asked_at = math.inf
                self.news.set()
                return

    async def _watch(self, client: Client, changed: asyncio.Event) -> None:
        while True:
            try:
                async with aclosing(client.watch_runs(only_changes=True, reconnect=0)) as changes:
                    async for _ in changes:
                        changed.set()
            except TobanError as error:
                if isinstance(error, Refused):
                    raise
                # Ask a lost daemon at once, to notice when it does not answer.
                changed.set()
                await asyncio.sleep(_AGAIN)
