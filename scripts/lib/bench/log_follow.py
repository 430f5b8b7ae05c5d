"""Shared by both followers of a log: compares each received piece with the source, byte by byte."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("os.pread is POSIX")

import os
import time
from collections.abc import AsyncIterable


class WrongBytesError(Exception):
    """The received bytes differ from the printed ones; the text says where."""


async def follow(pieces: AsyncIterable[bytes], source: str) -> float:
    """When the last byte of `source` was received, on the clock of perf_counter. Raises WrongBytesError."""
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        offset = 0
        complete = 0.0
        async for piece in pieces:
            if os.pread(fd, len(piece), offset) != piece:
                raise WrongBytesError(f"byte {offset} or one soon after it is wrong, or too many")
            offset += len(piece)
            if offset == size:
                complete = time.perf_counter()
        if offset != size:
            raise WrongBytesError(f"{offset} of {size} bytes came")
        return complete
    finally:
        os.close(fd)
