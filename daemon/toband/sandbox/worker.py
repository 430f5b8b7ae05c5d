"""The worker process: computes one request after another, until its input ends.

A request is a function, which both sides can import, with its arguments and its limit of processor time. Exceeding the
limit ends the process: the system does that, so that a library that never returns is ended too.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

HEAD: Final = struct.Struct("!Q")
READY: Final = b"ready"
NICENESS: Final = 5


def main(memory: int) -> None:
    """`memory` is how many bytes it may use beyond its use when it is ready."""
    requests, answers = _own_streams()
    # Signals to all processes of a terminal or a service are for the daemon, which ends this one when it stops.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_IGN)
    _load()
    _limit_memory(memory)
    _write(answers, READY)
    while (data := _read(requests)) is not None:
        function, args, seconds = pickle.loads(data)  # noqa: S301 - only the daemon writes to this pipe
        _write(answers, _answered(function, args, seconds))


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the daemon, under descriptors that no library prints to."""
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    return streams


def _load() -> None:
    """Imports the modules that requests need: they count neither as their time nor as their memory."""
    for module in ("cel_expr_python.cel", "toban.definition.checks.file_documents"):
        importlib.import_module(module)


def _limit_memory(memory: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where the system does not report it, or does not limit it, the time limit applies.
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm", "rb") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


def _answered(function: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> bytes:
    _limit_time(seconds)
    try:
        return pickle.dumps((True, function(*args)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    finally:
        _limit_time(0)


def _limit_time(seconds: float) -> None:
    """Limits processor time, which does not depend on the machine's load. Its signal ends the process."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(HEAD.size)
    return stream.read(*HEAD.unpack(head)) if len(head) == HEAD.size else None


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(HEAD.pack(len(data)) + data)
    stream.flush()
