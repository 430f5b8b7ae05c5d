"""What both followers of a log share: every piece is held against the source as it comes, byte by byte."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("os.pread is POSIX")

import os
import time
from collections.abc import AsyncIterable


class WrongBytesError(Exception):
    """What arrived is not what was printed; the text says where."""


async def follow(pieces: AsyncIterable[bytes], source: str) -> float:
    """When the last byte of `source` had come, on the clock of perf_counter. Raises WrongBytesError."""
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
