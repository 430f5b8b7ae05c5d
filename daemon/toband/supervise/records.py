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


def ended(attempt: Attempt, record: dict[str, Any]) -> AttemptEnded:
    not_started = record["cause"] == "nostart"
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
        ),
        started_at=time_of(record["started_at"]),
        finished_at=time_of(record["finished_at"]),
        not_started=not_started,
        error=record["error"],
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
        result=_result(record.get("result")),
        outputs=parse_outputs(record.get("output", "")),
    )


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
