"""External stores of secrets through a program that prints the value, such as `vault` or `op`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from toban.definition import format_duration
from toban.limits import MAX_SECRET_BYTES
from toband.ports import ProviderError
from toband.secret_backends.secret_directory import value_of

MOST_AT_ONCE = 4
MOST_CACHED = 1000
MOST_KEY_CHARS = 1000
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK = 64 * 1024


class CommandProvider:
    """`toband.ports.SecretProvider`. Runs the program without a shell and without standard input.

    Its environment has PATH, HOME, LANG and `env`, and nothing else of the daemon's.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 10.0, cache: float = 0.0
    ) -> None:
        """`{key}` and `{name}` in the command are replaced. Values are kept for `cache` seconds."""
        self._command = command
        self._env = dict(env or {})
        self._timeout = timeout
        self._cache = cache
        self._values: dict[str, tuple[float, str]] = {}
        self._free = asyncio.Semaphore(MOST_AT_ONCE)

    def check_key(self, key: str) -> None:
        if not key.isprintable() or len(key) > MOST_KEY_CHARS:
            raise ValueError(f"expected at most {MOST_KEY_CHARS} printable characters")
        if key.startswith("-"):
            raise ValueError("a key cannot begin with '-', which the program would read as an option")

    async def fetch(self, name: str, key: str) -> str:
        try:
            self.check_key(key)
        except ValueError as error:
            raise ProviderError(str(error)) from None
        until, value = self._values.pop(key, (0.0, ""))
        if time.monotonic() < until:
            self._values[key] = (until, value)
            return value
        async with self._free:
            value = value_of(await self._output(name, key), self._command[0])
        if self._cache:
            now = time.monotonic()
            self._values = {each: found for each, found in self._values.items() if found[0] > now}
            if len(self._values) < MOST_CACHED:
                self._values[key] = (now + self._cache, value)
        return value

    async def _output(self, name: str, key: str) -> bytes:
        program, *arguments = self._command
        words = [word.replace("{key}", key).replace("{name}", name) for word in arguments]
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # It may contain anything, so it is not read.
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment(),
                cwd="/" if sys.platform != "win32" else None,
                start_new_session=True,
            )
        except OSError as error:
            raise ProviderError(f"cannot start {program}: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._timeout):
                assert process.stdout is not None
                data = await _bounded(process.stdout)
                code = await process.wait()
        except TimeoutError:
            raise ProviderError(f"{program} did not end within {format_duration(self._timeout)}") from None
        finally:
            await _end(process)
        if code != 0:
            raise ProviderError(f"{program} ended with exit code {code}; run it as the daemon's user to see why")
        return data

    def _environment(self) -> dict[str, str]:
        if sys.platform == "win32":
            kept = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA")
            return {name: os.environ[name] for name in kept if name in os.environ} | self._env
        return {"PATH": _PATH, "HOME": os.path.expanduser("~"), "LANG": "C.UTF-8"} | self._env


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    """All of it. Raises ProviderError if it is too large for a secret."""
    data = b""
    while chunk := await stream.read(_CHUNK):
        data += chunk
        if len(data) > MAX_SECRET_BYTES + len("\r\n"):
            raise ProviderError(f"the value has more than {MAX_SECRET_BYTES // 1024} KiB")
    return data


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kills it with its children, unless it has ended, and reaps it."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
