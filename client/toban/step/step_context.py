"""A step's view of its run: reads parameters and inputs from the environment, and hands on outputs and events.

Standard library only, for Python 3.8 and later: the runner loads this file by its path into interpreters without Toban.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Dict  # noqa: UP035

_KEY_REFUSED = ("=", "<<", "\n", "\r")
# The command line itself times out earlier.
_ANSWERS_WITHIN = 120.0
_UNREACHABLE = 3
_LISTED = 1000
_LONGEST_ERROR = 4000
# What a line `::progress` may contain: see docs/definition.md.
_MESSAGE_MOST = 200
_NUMBERS_END = 999_999_999_999_999
_CONTROLS = re.compile("[\x00-\x1f\x7f]+")


class NotInAStepError(RuntimeError):
    """This process was not started by Toban."""


class DaemonError(RuntimeError):
    """The daemon could not be reached, or refused the request; the text says why.

    A failure to reach it may be retried; a refusal is final.
    """

    def __init__(self, text: str, *, passing: bool) -> None:
        super().__init__(text)
        self.toban_error_class = "RETRYABLE_TRANSIENT" if passing else "NON_RETRYABLE"


def _setting(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise NotInAStepError(f"there is no ${name} here: this works in a step that Toban started") from None


def params() -> dict[str, Any]:
    """The run's parameters, with their types. Raises NotInAStepError, OSError."""
    with open(_setting("TOBAN_PARAMS"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


class Event(Dict[str, Any]):  # noqa: UP006 - Python 3.8 cannot subscript dict
    """The event that started the run: a mapping of the fields that `{{ event }}` has, which are attributes too.

    In a run that no event started it is false, and its fields are empty.
    """

    def __init__(self, *fields: Any) -> None:
        super().__init__(_NO_EVENT, payload={})
        self.update(*fields)

    def __bool__(self) -> bool:
        return bool(self["type"])

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an event has no field {name!r}") from None


_NO_EVENT = {
    "id": "",
    "type": "",
    "payload": {},
    "source": "",
    "source_run": "",
    "source_step": "",
    "depth": 0,
    "at": "",
    "coalesced": 0,
}


def event() -> Event:
    """The event that started the run. Raises NotInAStepError, OSError."""
    _setting("TOBAN_RUN_ID")
    path = os.environ.get("TOBAN_EVENT")
    if not path:
        return Event()
    with open(path, encoding="utf-8") as file:
        return Event(json.load(file))


def context_dir() -> Path:
    """The directory of the run's artifacts. Raises NotInAStepError."""
    return Path(_setting("TOBAN_CONTEXT_DIR"))


def set_output(key: str, value: Any) -> None:
    """Hands a value on, as `steps.<id>.outputs.<key>`: text as it is, anything else as JSON; the last one counts.

    Raises NotInAStepError, ValueError for an invalid key, TypeError for a value that is not JSON, OSError.
    """
    if not key.strip() or key != key.strip() or any(part in key for part in _KEY_REFUSED):
        raise ValueError(f"cannot store the output {key!r}: it is not a valid name")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" in text:
        # A line that ends the value and does not occur in it.
        lines = set(text.split("\n"))
        word, number = "END", 0
        while word in lines:
            number += 1
            word = f"END{number}"
        entry = f"{key}<<{word}\n{text}\n{word}\n"
    else:
        entry = f"{key}={text}\n"
    path = _setting("TOBAN_OUTPUT")
    with open(path, "a+b") as file:
        # Other code may have left the last line without a newline.
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                entry = f"\n{entry}"
        file.write(entry.encode(errors="surrogateescape"))


def outputs(**values: Any) -> None:
    """Hands on several values; see `set_output`."""
    for key, value in values.items():
        set_output(key, value)


def _number(value: float) -> str:
    """A number of at least 0, without an exponent."""
    if not 0 <= value <= _NUMBERS_END:
        raise ValueError(f"cannot report {value}: give a number from 0 to {_NUMBERS_END}")
    return f"{value:.6f}".rstrip("0").rstrip(".")


def progress(current: float, total: float | None = None, message: str = "") -> None:
    """Reports the progress of the step: prints a line `::progress`, which the log leaves out.

    Of the message the first 200 characters are kept. Raises ValueError for a number that is negative or too large.
    """
    amount = _number(current) if total is None else f"{_number(current)}/{_number(total)}"
    text = _CONTROLS.sub(" ", message[:_MESSAGE_MOST]).encode(errors="replace").decode()
    print(f"::progress {amount} {text}".rstrip(), flush=True)


def emit(event_type: str | Mapping[str, Any], payload: Any = None, *, dedupe_key: str = "") -> str:
    """Emits an event, which starts the workflows that listen to it; returns its id once it is stored.

    A mapping `{"type": …, "payload": …}` may be given instead of type and payload.
    `payload` is any JSON value; None means {}. If a stored event of this type has the same `dedupe_key`, nothing is
    stored and that event's id is returned: with a key, a retried step does not emit its events twice. Raises
    NotInAStepError, DaemonError, TypeError and ValueError for a payload that is not JSON.
    """
    if not isinstance(event_type, str):
        given = dict(event_type)
        event_type, payload = given.pop("type", ""), given.pop("payload", payload)
        if given or not isinstance(event_type, str):
            raise TypeError("an event to emit has a type, which is a text, and a payload, nothing else")
    # Every sender produces the same text, and refuses the same values.
    text = json.dumps({} if payload is None else payload, ensure_ascii=False, allow_nan=False)
    text.encode()
    return str(_daemon().emit(event_type, text, dedupe_key)["id"])


class Emitter:
    """The `emitter` argument of a python step's function."""

    def emit(self, event_type: str | Mapping[str, Any], payload: Any = None, *, dedupe_key: str = "") -> str:
        """See `emit`."""
        return emit(event_type, payload, dedupe_key=dedupe_key)


class Scheduler:
    """Schedules that belong to a subject, such as an issue; when one is due, SCHEDULE_TRIGGERED is emitted.

    A schedule is a mapping with `id`, `subject`, `action`, `workflow`, `request` (the words), `understood`, `timezone`,
    `state` (`active`, `ended` or `cancelled`), `next_due` (ISO 8601 in UTC, or empty), `occurrences`, `max_occurrences`
    and `dedupe_key`. All methods raise NotInAStepError and DaemonError.
    """

    def schedule(
        self,
        subject: str,
        request: str,
        action: str = "",
        *,
        timezone: str = "",
        dedupe_key: str = "",
        max_occurrences: int = 0,
        workflow: str = "",
    ) -> dict[str, Any]:
        """Stores a schedule; `request` says in English or Japanese when it is due, such as `3日後の朝9時にリマインド`.

        `action` is `reminder`, `escalate`, `auto_close`, `follow_up` or `check_progress`; it is empty if `request`
        names one or a `workflow` is to be started. If an active schedule of the subject has the same `dedupe_key`, that
        one is returned.
        """
        options = {
            "action": action,
            "timezone": timezone,
            "dedupe_key": dedupe_key,
            "max_occurrences": max_occurrences,
            "workflow": workflow,
        }
        return _schedule(_daemon().schedule(subject, request, options))

    def cancel(self, schedule_id: str) -> bool:
        """Cancels a schedule: it is never due again. False if it had ended before; may be repeated."""
        return bool(_schedule(_daemon().cancel(schedule_id))["state"] == "cancelled")

    def list_by_subject(self, subject: str) -> list[dict[str, Any]]:
        """The active schedules in order of creation; at most 1,000."""
        return [_schedule(each) for each in _daemon().list_by_subject(subject)]

    def cancel_by_subject(self, subject: str) -> int:
        """Cancels all active schedules; returns their number. May be repeated."""
        return int(_daemon().cancel_by_subject(subject))

    list_by_issue = list_by_subject
    cancel_by_issue = cancel_by_subject


def _schedule(data: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the API's JSON form, which omits empty values, has long enum names, and has large numbers as text."""
    texts = ("id", "subject", "workflow", "request", "understood", "timezone", "dedupe_key")
    made: dict[str, Any] = {name: data.get(name, "") for name in texts}
    for name, prefix in (("action", "SCHEDULE_ACTION_"), ("state", "SCHEDULE_STATE_")):
        made[name] = str(data.get(name, "")).replace(prefix, "").lower()
    for name in ("occurrences", "max_occurrences"):
        made[name] = int(data.get(name, 0))
    made["next_due"] = data.get("next_due") or ""
    return made


class _Sdk:
    """Calls the daemon with the SDK that is installed in this interpreter."""

    def __init__(self, sdk: Any, to_dict: Callable[[Any], dict[str, Any]]) -> None:
        self._sdk = sdk
        self._to_dict = to_dict

    def emit(self, event_type: str, text: str, dedupe_key: str) -> Any:
        payload = json.loads(text)
        event, _ = self._ask(lambda client: client.emit_event(event_type, payload, dedupe_key=dedupe_key))
        return self._to_dict(event)

    def schedule(self, subject: str, words: str, options: dict[str, Any]) -> Any:
        made, _ = self._ask(lambda client: client.create_schedule(subject, words, **options))
        return self._to_dict(made)

    def cancel(self, schedule_id: str) -> Any:
        return self._to_dict(self._ask(lambda client: client.cancel_schedule(schedule_id)))

    def list_by_subject(self, subject: str) -> Any:
        def first(client: Any) -> list[Any]:
            return list(islice(client.list_schedules(subject=subject), _LISTED))

        return [self._to_dict(each) for each in self._ask(first)]

    def cancel_by_subject(self, subject: str) -> Any:
        return self._ask(lambda client: client.cancel_by_subject(subject))

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        try:
            with self._sdk.SyncClient() as client:
                return question(client)
        except self._sdk.TobanError as error:
            passing = isinstance(error, (self._sdk.Unreachable, self._sdk.ResourceExhausted))
            raise DaemonError(str(error), passing=passing) from error


class _CommandLine:
    """Calls the daemon with its own command line, in a separate process."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv

    def emit(self, event_type: str, text: str, dedupe_key: str) -> Any:
        key = [f"--dedupe-key={dedupe_key}"] if dedupe_key else []
        return self._ask("emit", "-d", "@-", *key, "-o", "json", "--", event_type, data=text)

    def schedule(self, subject: str, words: str, options: dict[str, Any]) -> Any:
        given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value]
        return self._ask("schedule", f"--subject={subject}", *given, "-o", "json", "--", words)

    def cancel(self, schedule_id: str) -> Any:
        return self._ask("schedules", "cancel", "-o", "json", "--", schedule_id)[0]

    def list_by_subject(self, subject: str) -> Any:
        limit = f"--limit={_LISTED}"
        return self._ask("schedules", "list", f"--subject={subject}", limit, "-o", "json")

    def cancel_by_subject(self, subject: str) -> Any:
        answer = self._ask("schedules", "cancel", f"--subject={subject}", "-o", "json")
        return answer["cancelled"]

    def _ask(self, *arguments: str, data: str = "") -> Any:
        try:
            done = subprocess.run(
                [*self._argv, *arguments],
                input=data.encode(),
                capture_output=True,
                timeout=_ANSWERS_WITHIN,
                check=False,
            )
        except (OSError, ValueError) as error:
            text = f"cannot ask the daemon: cannot run {self._argv[0]}: {error}"
            raise DaemonError(text, passing=False) from error
        except subprocess.TimeoutExpired:
            text = f"cannot ask the daemon: no answer within {_ANSWERS_WITHIN:g} s"
            raise DaemonError(text, passing=True) from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise DaemonError(
                said or f"cannot ask the daemon: {self._argv[0]} exited with {done.returncode}",
                passing=done.returncode == _UNREACHABLE,
            )
        return json.loads(done.stdout.decode())


def _daemon() -> _Sdk | _CommandLine:
    """A way to call the daemon. Raises NotInAStepError, and DaemonError if there is none."""
    _setting("TOBAN_SERVER")
    try:
        sdk = importlib.import_module("toban.sdk")
        to_dict = importlib.import_module("google.protobuf.json_format").MessageToDict
        # An older release lacks some of it.
        if hasattr(sdk.SyncClient, "emit_event"):
            return _Sdk(sdk, lambda message: to_dict(message, preserving_proto_field_name=True))
    except Exception:  # noqa: S110 - not installed here, or not fit for this interpreter
        pass
    try:
        argv = json.loads(os.environ.get("TOBAN_CLI") or "[]")
    except ValueError:
        argv = []
    if not argv or not all(isinstance(each, str) for each in argv):
        text = (
            "cannot ask the daemon: this interpreter has no toban.sdk, and $TOBAN_CLI names no "
            "command line; install toban for it"
        )
        raise DaemonError(text, passing=False)
    return _CommandLine(argv)


class Context:
    """The `context` argument of a python step's function."""

    @property
    def params(self) -> dict[str, Any]:
        return params()

    @property
    def config(self) -> dict[str, Any]:
        """An alias, by the name that other systems use."""
        return params()

    @property
    def event(self) -> Event:
        """The event that started the run."""
        return event()

    @property
    def inputs(self) -> Mapping[str, Path]:
        """The paths of the step's inputs, by their names in its workspace."""
        found = json.loads(os.environ.get("TOBAN_INPUTS") or "{}")
        return {name: Path(os.path.abspath(path)) for name, path in found.items()}

    @property
    def directory(self) -> Path:
        """The directory of the run's artifacts."""
        return context_dir()

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "run_id": _setting("TOBAN_RUN_ID"),
            "workflow": _setting("TOBAN_WORKFLOW"),
            "step": _setting("TOBAN_STEP"),
            "attempt": int(os.environ.get("TOBAN_ATTEMPT") or 1),
            "iteration": int(os.environ.get("TOBAN_ITERATION") or 1),
        }

    def output(self, key: str, value: Any) -> None:
        """See `set_output`."""
        set_output(key, value)

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """See `progress`."""
        progress(current, total, message)

    def emit(self, event_type: str | Mapping[str, Any], payload: Any = None, *, dedupe_key: str = "") -> str:
        """See `emit`."""
        return emit(event_type, payload, dedupe_key=dedupe_key)

    @property
    def scheduler(self) -> Scheduler:
        return Scheduler()


def say_error(text: str) -> None:
    """Hands on the error message of the step that is about to fail."""
    set_output("toban.error", text[:_LONGEST_ERROR].encode(errors="backslashreplace").decode())


def say_class(error: BaseException) -> None:
    """Hands on an exception's error class and retry delay.

    They are its attributes `toban_error_class` and `retry_after` (in seconds); any exception may have them.
    """
    kind = getattr(error, "toban_error_class", None)
    kind = getattr(kind, "value", kind)
    if kind is None:
        return
    if kind not in CLASSES:
        print(f"toban_error_class is {kind!r}, not one of {', '.join(CLASSES)}", file=sys.stderr)
        return
    set_output("toban.error_class", kind)
    after = getattr(error, "retry_after", None)
    if isinstance(after, (int, float)) and not isinstance(after, bool) and 0 <= after < 1e9:
        set_output("toban.retry_after", f"{_number(round(after, 3))}s")


CLASSES = ("RETRYABLE_TRANSIENT", "RETRYABLE_RATE_LIMIT", "NON_RETRYABLE", "FATAL")
