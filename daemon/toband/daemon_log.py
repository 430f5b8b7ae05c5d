"""The daemon's own log: structured, to the console and optionally to a file of JSON lines."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    import structlog
else:
    # structlog loads rich, which only the command line needs: 5 MiB, and a tenth of the daemon's start.
    _hidden = "rich" not in sys.modules
    if _hidden:
        sys.modules["rich"] = None
    try:
        import structlog
    finally:
        if _hidden:
            del sys.modules["rich"]

from toband.log_file import LogFile
from toband.systemd_journal import JournalSocket, field_name, is_journal

# Of syslog.
_PRIORITIES: Final = {"debug": "7", "info": "6", "warning": "4", "error": "3", "critical": "2"}
# Fields of the journal that have other names, or are in every entry already.
_JOURNAL_NAMES: Final = {"run": "TOBAN_RUN_ID", "run_name": "TOBAN_RUN"}
_NOT_FIELDS: Final = ("event", "level", "timestamp", "exception")


class _RunNames:
    """Adds the name of the run, such as nightly#12, and its workflow to events about a run."""

    def __init__(self) -> None:
        self.find: Callable[[str], str] = lambda _: ""

    def __call__(self, _logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if "run" in event and (name := event.get("run_name") or self.find(str(event["run"]))):
            event["run_name"] = name
            event.setdefault("workflow", name.rpartition("#")[0])
        return event


_run_names = _RunNames()


def name_runs(find: Callable[[str], str]) -> None:
    """`find` returns the name of a run by its id; an empty one, if it does not know it. Any thread may call it."""
    _run_names.find = find


class _Sink:
    """Writes each event to the console in one form and to the file in another, and to the journal in a third."""

    def __init__(self, console: TextIO, form: str, file: LogFile | None) -> None:
        # Where standard error is the journal, its entries get fields; a form that was chosen stays.
        self._journal = JournalSocket() if form == "auto" and _leads_to_journal(console) else None
        tty = console.isatty()
        self._file = file
        self._json = structlog.processors.JSONRenderer(ensure_ascii=False)
        plain = form == "console" or (form == "auto" and tty)
        colors = tty and "NO_COLOR" not in os.environ
        self._render: Any = structlog.dev.ConsoleRenderer(colors=colors) if plain else self._json

    def __call__(self, logger: Any, method: str, event: structlog.typing.EventDict) -> str:
        if self._file is not None:
            line = self._json(logger, method, dict(event))
            self._file.write(f"{line if isinstance(line, str) else line.decode()}\n")
        if self._journal is not None and self._journal.send(_entry(event)):
            raise structlog.DropEvent
        return str(self._render(logger, method, event))


def _leads_to_journal(console: TextIO) -> bool:
    try:
        return is_journal(console.fileno())
    except (OSError, ValueError):
        return False


def _entry(event: structlog.typing.EventDict) -> dict[str, str]:
    """The fields of one entry; its message is for people."""
    values = {key: _text(value) for key, value in event.items() if key not in _NOT_FIELDS}
    told = " ".join(f"{key}={value}" for key, value in values.items() if key not in ("action", "run"))
    message = f"{event.get('event', '')} {told}".strip()
    if "exception" in event:
        message += f"\n{event['exception']}"
    return {
        "MESSAGE": message,
        "PRIORITY": _PRIORITIES.get(str(event.get("level")), "6"),
        "SYSLOG_IDENTIFIER": "toband",
        **{_JOURNAL_NAMES.get(key) or field_name(key): value for key, value in values.items()},
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


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


class _Threshold:
    """Drops what is below the level, which may change. Loggers are made once, and so take everything."""

    def __init__(self) -> None:
        self._numbers = logging.getLevelNamesMapping()
        self._lowest = logging.INFO

    def set(self, level: str) -> None:
        self._lowest = self._numbers[level.upper()]
        logging.getLogger().setLevel(max(self._lowest, logging.WARNING))

    def __call__(self, logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if self._numbers[method.upper()] < self._lowest:
            raise structlog.DropEvent
        return event


_threshold = _Threshold()


def set_level(level: str) -> None:
    """Changes the level of a log that is set up."""
    _threshold.set(level)


def set_up(level: str, form: str, file: str, *, file_size: int | None = None) -> None:
    """The file is rotated at that size. Raises OSError if the file cannot be opened."""
    opened = LogFile(file, most=file_size) if file else None
    structlog.configure(
        processors=[
            _threshold,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _run_names,
            _Sink(sys.stderr, form, opened),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Forgiving(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Forward()], force=True)
    set_level(level)
