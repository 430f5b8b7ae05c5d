"""Text for events: the source, the outcome and the payload."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toban.cli.human_text import enum_word, one_line, plain, width
from toban.cli.render.reason_text import not_started
from toban.quantity_text import counted, size_text
from toban.v1 import event_pb2, workflow_pb2

# How many workflows a line names.
_MOST_NAMES: Final = 3
_MOST_PAYLOAD: Final = 60
_MOST_LINE: Final = 99  # and a comma

_STYLES: Final = {"pending": "yellow", "cut": "red"}


def event_state(event: event_pb2.Event) -> str:
    """The state of an event."""
    return enum_word(event_pb2.EventState, event.state)


def event_style(event: event_pb2.Event) -> str:
    """The color of the outcome of an event."""
    if any(run.run_id for run in event.runs):
        return "green"
    return _STYLES.get(event_state(event), "dim")


def started(event: event_pb2.Event) -> list[event_pb2.EventRun]:
    """The runs that the event started, in order."""
    return [run for run in event.runs if run.run_id]


def event_outcome(event: event_pb2.Event) -> str:
    """The outcome in one line: `started invoices, ledger; debounced report; skipped archive`, `pending: draining`."""
    if event.state != event_pb2.EVENT_STATE_RESOLVED:
        return f"{event_state(event)}: {event.reason}" if event.reason else event_state(event)
    by_outcome: dict[str, list[str]] = {"started": [], "debounced": [], "skipped": []}
    for run in event.runs:
        by_outcome["started" if run.run_id else _not_started_verb(run)].append(run.workflow)
    return "; ".join(f"{verb} {_some(names)}" for verb, names in by_outcome.items() if names) or "started no runs"


def not_started_line(run: event_pb2.EventRun) -> str:
    """`skipped ledger: overlap: run ledger#3 is active`."""
    debounced = _not_started_verb(run) == "debounced"
    return f"{_not_started_verb(run)} {run.workflow}: {run.detail if debounced else not_started(run)}"


def _not_started_verb(run: event_pb2.EventRun) -> str:
    """An event of a burst is debounced: the burst has one run, at its end."""
    return "debounced" if run.reason == workflow_pb2.NOT_STARTED_REASON_DEBOUNCED else "skipped"


def why_nothing(found: event_pb2.ResolveEventResponse) -> list[str]:
    """Lines that say why an event started no runs: no workflow listens to it, or none matched."""
    if not found.candidates:
        return ["no current definition listens to it"]
    listeners = counted(len(found.candidates), "current definition listens", "current definitions listen")
    return [
        f"{listeners} to it",
        *(
            f"{'would start now' if one.matches else 'not started'}: {one.workflow}: {one.reason}"
            for one in found.candidates
        ),
    ]


def source(event: event_pb2.Event, names: Mapping[str, str] | None = None) -> str:
    """Who emitted the event. `names` are names of runs by id."""
    word = enum_word(event_pb2.EventSource, event.source)
    run = (names or {}).get(event.source_run, event.source_run)
    about = ""
    if run:
        about = f"step {event.source_step} of {run}" if event.source_step else f"run {run}"
    match event.source:
        case event_pb2.EVENT_SOURCE_STEP if about:
            return about
        case event_pb2.EVENT_SOURCE_CLIENT:
            return f"{word}, {event.caller}" if event.caller else word
        case _:
            return f"{word}, about {about}" if about else word


def short_payload(event: event_pb2.Event) -> str:
    """The payload, cut for one line; empty if it is empty."""
    if event.payload_bytes and not event.payload_json:
        return f"({size_text(event.payload_bytes)})"
    text = one_line(event.payload_json)
    if text == "{}":
        return ""
    return text if len(text) <= _MOST_PAYLOAD else f"{text[: _MOST_PAYLOAD - 1]}…"


def payload_lines(event: event_pb2.Event) -> list[str]:
    """The payload as indented JSON; no lines if it is empty."""
    if event.payload_json in ("", "{}"):
        return []
    try:
        lines = _laid_out(json.loads(event.payload_json), "")
    except (ValueError, RecursionError):
        lines = event.payload_json.splitlines()
    return [plain(line) for line in lines]


def _laid_out(value: Any, start: str) -> list[str]:
    """JSON with a line for each field; lists fill their lines. `start` begins the first line."""
    margin = " " * (len(start) - len(start.lstrip()))
    text = start + json.dumps(value, ensure_ascii=False)
    match value:
        case dict() if value:
            inner = [
                _laid_out(each, f"{margin}  {json.dumps(key, ensure_ascii=False)}: ") for key, each in value.items()
            ]
            return [f"{start}{{", *_with_commas(inner), f"{margin}}}"]
        case list() if width(text) > _MOST_LINE:
            return [f"{start}[", *_with_commas(_filled(value, f"{margin}  ")), f"{margin}]"]
        case _:
            return [text]


def _filled(values: Sequence[Any], margin: str) -> list[list[str]]:
    """The lines of each value; consecutive short values share a line."""
    found: list[list[str]] = []
    fits = False
    for value in values:
        text = json.dumps(value, ensure_ascii=False)
        if width(margin + text) > _MOST_LINE:
            found.append(_laid_out(value, margin))
            fits = False
        elif fits and width(found[-1][0]) + width(text) + 2 <= _MOST_LINE:
            found[-1][0] += f", {text}"
        else:
            found.append([margin + text])
            fits = True
    return found


def _with_commas(parts: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for number, part in enumerate(parts, 1):
        lines += part
        if number < len(parts):
            lines[-1] += ","
    return lines


def _some(names: Sequence[str]) -> str:
    told = ", ".join(names[:_MOST_NAMES])
    return f"{told} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else told
