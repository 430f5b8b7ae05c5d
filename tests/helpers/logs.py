"""Attempt files with given contents, for those who read them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from helpers.supervision import new_attempt
from toband.domain.attempt_model import Attempt
from toband.ports import LogKind
from toband.supervise.files.run_files import RunFiles
from toband.supervise.shim import frames
from toband.supervise.shim.attempt_file import AttemptFile, claim

SEAL = "seal"


class WrittenLog:
    """One attempt's file, open for writing as its shim would have it."""

    def __init__(self, files: RunFiles, step: str = "step") -> None:
        self.attempt: Attempt = new_attempt(step)
        self.path = files.log(self.attempt)
        directory = files.attempts(self.attempt.run_id)
        os.makedirs(directory, exist_ok=True)
        facts = {"format": frames.FORMAT, "seal": SEAL}
        fd = claim(directory, files.log_name(self.attempt), facts)
        assert fd is not None
        self.fd = fd
        self.file = AttemptFile(fd)

    def __enter__(self) -> WrittenLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self.fd)

    def print(self, *pieces: tuple[LogKind, bytes]) -> None:
        for kind, data in pieces:
            self.file.append(int(kind), data)

    def end(self, **record: Any) -> None:
        self.file.finish({"seal": SEAL, **record})

    def size(self) -> int:
        return os.fstat(self.fd).st_size


def joined(pieces: Sequence[tuple[LogKind, bytes]], kinds: Sequence[LogKind]) -> bytes:
    return b"".join(data for kind, data in pieces if kind in kinds)
