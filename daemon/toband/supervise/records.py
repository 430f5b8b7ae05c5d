"""What an end record means: from the shim's JSON to an event of the domain."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from toband.domain.events import AttemptEnded
from toband.domain.model import Attempt, ResourceUse, TreeCause, TreeEnding


def time_of(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(
        microsecond=microseconds % 1_000_000
    )


OUTPUTS_LOST = "the disk was full when it ended: there was no space for the outputs and the result that it handed on"


def ended(attempt: Attempt, record: dict[str, Any]) -> AttemptEnded:
    """A record of an older shim lacks what was not written then.

    A step whose outputs could not be kept has not succeeded, whatever its exit code: those after it would go on with
    values that are not there. `error` says so.
    """
    not_started = record["cause"] == "nostart"
    error = record["error"]
    if record.get("outputs_lost"):
        error = f"{error}; {OUTPUTS_LOST}" if error else OUTPUTS_LOST
    return AttemptEnded(
        step=attempt.step,
        token=attempt.token,
        ending=TreeEnding(
            cause=TreeCause.EXITED if not_started else TreeCause(record["cause"]),
            signals=tuple(record["signals"]),
            leftovers=record["leftovers"],
            survivors=record["survivors"],
            proved_empty=record["proved_empty"],
            took=record["took"],
            orphans=_survivors(record),
            limit=record.get("limit", ""),
            cgroup=record.get("cgroup", False),
        ),
        started_at=time_of(record["started_at"]),
        finished_at=time_of(record["finished_at"]),
        not_started=not_started,
        error=error,
        pid=record["pid"] or None,
        exit_code=record["exit_code"],
        signal=record["signal"],
        resources=ResourceUse(
            user_time=record["user_time"],
            system_time=record["system_time"],
            max_rss_bytes=record["max_rss"],
        ),
        stdout_bytes=record["stdout_bytes"],
        stderr_bytes=record["stderr_bytes"],
        dropped_bytes=record["dropped"],
        result=_result(record.get("result")),
        outputs=parse_outputs(record.get("output", "")),
    )


def survivors(record: dict[str, Any]) -> list[tuple[int, int]]:
    """Pid and start time of processes that could not be ended, as far as they are named."""
    return [(pid, start) for pid, start in record.get("survivor_pids", [])]


def _survivors(record: dict[str, Any]) -> str:
    named = ", ".join(str(pid) for pid, _ in survivors(record))
    count = record["survivors"]
    if not count:
        return ""
    return f"{count} could not be ended: pid {named}" if named else f"{count} could not be ended"


def parse_outputs(text: str) -> dict[str, str]:
    """`key=value` lines and `key<<WORD` … `WORD` blocks. Lines that are neither say nothing."""
    outputs: dict[str, str] = {}
    # Not splitlines: a form feed, or a separator of Unicode's, is part of a value.
    lines = iter([line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")])
    for line in lines:
        key, equals, value = line.partition("=")
        block, arrows, word = line.partition("<<")
        if arrows and (not equals or len(block) < len(key)):
            body = []
            for inner in lines:
                if inner == word:
                    break
                body.append(inner)
            outputs[block.strip()] = "\n".join(body)
        elif equals and key.strip():
            outputs[key.strip()] = value
    return outputs


def _result(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
