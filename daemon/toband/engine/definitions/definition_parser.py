"""Parses definitions: small plain ones in threads of its own, all others in a process with limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from toban.definition import Parsed, Problem, parse
from toban.definition.source.field_positions import field_positions
from toband.ports import OverLimitError, Sandbox

SECONDS: Final = 30.0
"""Processor time for one text. The largest valid one takes a third of it on a slow machine."""
_PLACES: Final = "<positions>"
_SMALL: Final = 16 * 1024
_THREADS: Final = 2
# An anchor, which aliases and merges repeat; not a shell command in the background or a redirection.
_ANCHOR: Final = re.compile(r"(?:^|[\s,\[{])&[^\s&]")

_Result = TypeVar("_Result")


class DefinitionParser:
    """Belongs to the event loop. It does not use the threads that launch steps."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="definitions")

    async def parse(self, text: str | bytes, file: str, jobs: Mapping[str, str] | None = None) -> Parsed:
        """As `toban.definition.parse`. Exceeding a limit is a problem of the text."""
        if is_small(text, *(jobs or {}).values()):
            return await self.in_thread(lambda: parse(text, file, jobs))
        try:
            return await self._sandbox.call(parse, text, file, jobs, key=file, seconds=SECONDS)
        except OverLimitError as error:
            reason = f"{error}; simplify or split it"
        except OSError as error:
            reason = f"{error.strerror or error}; try again"
        message = f"cannot read the definition: {reason}"
        problem = Problem(message=message, path="", line=1, column=1, file=file)
        return Parsed(documents=(), problems=(problem,))

    async def positions(self, text: str, paths: Sequence[str]) -> Sequence[tuple[int, int]]:
        """Line and column of fields of a text that was read before; the first line if that exceeds a limit."""
        if is_small(text):
            return await self.in_thread(lambda: field_positions(text, paths))
        try:
            found: list[tuple[int, int]] = await self._sandbox.call(
                field_positions, text, paths, key=_PLACES, seconds=SECONDS
            )
        except (OverLimitError, OSError):
            return [(1, 1)] * len(paths)
        return found

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Runs quick work."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def is_small(*texts: str | bytes) -> bool:
    """Whether parsing them is quick: they are short and repeat no part of themselves."""
    if sum(map(len, texts)) > _SMALL:
        return False
    return not any(_repeats(text) for text in texts)


def _repeats(text: str | bytes) -> bool:
    shown = text if isinstance(text, str) else text.decode(errors="replace")
    return _ANCHOR.search(shown) is not None
