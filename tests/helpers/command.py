"""Runs `toban` in this process, against a real daemon."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from helpers.daemon import Daemon
from toban.cli.command_line import main


@dataclass(frozen=True)
class Said:
    """What a command wrote."""

    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Toban:
    """Runs commands against a daemon."""

    daemon: Daemon

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> Said:
        """In this process: starting another one takes longer than everything that is done here."""
        given, out, err = (io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in (stdin.encode(), b"", b""))
        with patch.multiple(sys, stdin=given, stdout=out, stderr=err):
            ended = main(["--server", self.daemon.socket, *arguments])
        said = [stream.buffer.getvalue().decode() for stream in (out, err)]
        assert ended == code, "".join(said)
        return Said(*said)
