"""The daemon's side of one worker process."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import toban
import toband
from toband.ports import OverLimitError
from toband.sandbox.worker import HEAD, READY

MEMORY: Final = 512 * 1024 * 1024
START_WITHIN: Final = 60.0
"""Seconds for a worker to become ready; on an idle machine it takes a third of a second."""
LEAST_WALL, WALL_PER_SECOND = 30.0, 10.0
"""Wall clock seconds that a request may take, for code that waits instead of computing."""
_PASSED_ON: Final = ("PATH", "LANG", "SYSTEMROOT")


class WorkerProcess:
    """Belongs to the event loop. One request at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ended = False

    @classmethod
    async def start(cls, memory: int = MEMORY) -> WorkerProcess:
        """Raises OSError if none can be started."""
        packages = [os.path.dirname(path) for module in (toban, toband) for path in module.__path__]
        program = f"import sys; sys.path[:0] = {packages!r}; from toband.sandbox import worker; worker.main({memory})"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={key: value for key, value in os.environ.items() if key in _PASSED_ON},
        )
        worker = cls(process)
        ready = False
        try:
            async with asyncio.timeout(START_WITHIN):
                ready = await worker._receive() == READY
        except (TimeoutError, EOFError):
            # The system lacks a resource, which is transient.
            raise OSError(errno.EAGAIN, "a worker process did not start") from None
        finally:
            if not ready:
                worker.kill()
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        return not self._ended and self._process.returncode is None

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> Any:
        """The function's result. Raises its errors, and OverLimitError; then, and if it is cancelled, the process is
        gone.
        """
        request = pickle.dumps((function, args, seconds))
        done = False
        try:
            async with asyncio.timeout(max(LEAST_WALL, WALL_PER_SECOND * seconds)):
                answer = await self._exchange(request)
            done = True
        except TimeoutError:
            raise OverLimitError(_too_long(seconds)) from None
        except (EOFError, ConnectionError):
            raise OverLimitError(await self._why_it_ended(seconds)) from None
        finally:
            if not done:
                self.kill()
        succeeded, found = pickle.loads(answer)  # noqa: S301 - written by the daemon's own code
        if succeeded:
            return found
        if isinstance(found, MemoryError):
            self.kill()
            raise OverLimitError(_too_large()) from None
        raise found

    async def _exchange(self, request: bytes) -> bytes:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(HEAD.pack(len(request)) + request)
        await stdin.drain()
        return await self._receive()

    async def _receive(self) -> bytes:
        """Raises EOFError."""
        stdout = self._process.stdout
        assert stdout is not None
        (size,) = HEAD.unpack(await stdout.readexactly(HEAD.size))
        return await stdout.readexactly(size)

    async def _why_it_ended(self, seconds: float) -> str:
        code = await self._process.wait()
        if sys.platform != "win32":
            import signal

            if code == -signal.SIGPROF:
                return _too_long(seconds)
        # Without memory the library ends the process, or the system does.
        return _too_large()

    def kill(self) -> None:
        """Kills it at once; repeating it is harmless."""
        self._ended = True
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        self.kill()
        await self._process.wait()


def _too_long(seconds: float) -> str:
    return f"it took longer than {seconds:g} s"


def _too_large() -> str:
    return f"it needed more than {MEMORY // 1024**2} MiB of memory"
