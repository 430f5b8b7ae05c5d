"""The daemon's own log: structured, to the console and optionally to a file of JSON lines."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any, TextIO, cast

import structlog


class _Sink:
    """Writes each event to the console in one form and to the file in another."""

    def __init__(self, console: TextIO, form: str, file: TextIO | None) -> None:
        tty = console.isatty()
        self._file = _Forgiving(file) if file is not None else None
        self._json = structlog.processors.JSONRenderer(ensure_ascii=False)
        plain = form == "console" or (form == "auto" and tty)
        colors = tty and "NO_COLOR" not in os.environ
        self._render: Any = structlog.dev.ConsoleRenderer(colors=colors) if plain else self._json

    def __call__(self, logger: Any, method: str, event: structlog.typing.EventDict) -> str:
        if self._file is not None:
            line = self._json(logger, method, dict(event))
            self._file.write(f"{line if isinstance(line, str) else line.decode()}\n")
            self._file.flush()
        return str(self._render(logger, method, event))


class _Forgiving:
    """A stream whose errors are ignored: a full disk loses log lines and fails no caller."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _Forward(logging.Handler):
    """Passes records of the standard library's logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def set_up(level: str, form: str, file: str) -> None:
    """Raises OSError if the file cannot be opened."""
    opened = open(file, "a", encoding="utf-8") if file else None  # noqa: SIM115 - for life
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _Sink(sys.stderr, form, opened),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Forgiving(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Forward()], force=True)
