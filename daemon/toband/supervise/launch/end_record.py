"""The JSON records of an attempt file: the claim, the started process, the end.

They are parsed like input: a step that runs as the daemon's user can write anything into its file, and a disk may lose
parts of it. An invalid record raises RecordError with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toband.domain.attempt_model import Attempt, ResourceUse, TreeCause, TreeEnding
from toband.domain.run_events import AttemptEnded, AttemptStarted
from toband.supervise.launch.step_outputs import parse_outputs, parse_result

OUTPUTS_LOST = "the disk was full when it ended: there was no space for the outputs and the result that it handed on"

_MOST = (1 << 63) - 1
"""Largest number that the database can store."""
_LATEST = 253_402_300_799_999_999
"""Microseconds: the end of the year 9999, behind which there are no dates."""
_CODES = 1 << 32
_SIGNALS_MOST = 16
_SURVIVORS_MOST = 1000
_COMMAND_CHARS = 1000
_NO_START = "nostart"


class RecordError(Exception):
    """The record is invalid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which process supervises an attempt. `void`: none does, and none ever will.

    `over`: when the time of the step is over at the latest, by the clock of the boot; `ending`: seconds that it may
    then take to end it. `command` is what it runs, for people. An older shim says none of this.
    """

    void: bool = False
    pid: int = 0
    start: int = 0
    boot_id: str = ""
    cgroup: str = ""
    cgroup_namespace: str = ""
    ending: float | None = None
    over: float | None = None
    timeout_cause: TreeCause = TreeCause.TIMEOUT
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord:
    """`unsynced`: the disk failed to store the file. `survivors`: pid and start time of what could not be ended."""

    event: AttemptEnded
    unsynced: bool
    survivors: tuple[tuple[int, int], ...]


class _Fields:
    """Reads typed values out of an object; a required one has no default."""

    def __init__(self, what: str, facts: Mapping[str, Any]) -> None:
        self._what = what
        self._facts = facts

    def whole(self, name: str, low: int = 0, high: int = _MOST) -> int:
        value = self._facts.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(name)
        return value

    def whole_or_none(self, name: str, low: int, high: int) -> int | None:
        if name in self._facts and self._facts[name] is None:
            return None
        return self.whole(name, low, high)

    def seconds(self, name: str) -> float:
        value = self._facts.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
            raise self.wrong(name)
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._facts.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(name)
        # Half of a surrogate pair is no text that could be stored.
        return value.encode(errors="replace").decode()

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._facts.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name)
        return value

    def cause(self, name: str) -> TreeCause:
        value = self.text(name)
        if value not in tuple(TreeCause):
            raise self.wrong(name)
        return TreeCause(value)

    def items(self, name: str, most: int, default: list[Any] | None = None) -> list[Any]:
        value = self._facts.get(name, default)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(name)
        return value

    def wrong(self, name: str) -> RecordError:
        known = name in self._facts
        return RecordError(f"{self._what} {'has no valid' if known else 'lacks'} {name!r}")


def time_of(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)


def claim_of(attempt: Attempt, facts: Mapping[str, Any]) -> Claim:
    """Raises RecordError, for the claim of another attempt too."""
    fields = _Fields("its claim", facts)
    void = fields.flag("void", False)
    if fields.text("attempt") != attempt.id:
        raise RecordError("its claim is that of another attempt")
    # A void claim of an earlier version has no token.
    if fields.text("token", attempt.token if void else None) != attempt.token:
        raise RecordError("its claim has another token")
    if void:
        return Claim(void=True)
    return Claim(
        pid=fields.whole("pid", 1),
        start=fields.whole("start"),
        boot_id=fields.text("boot_id"),
        cgroup=fields.text("cgroup", ""),
        cgroup_namespace=fields.text("cgroup_ns", ""),
        ending=fields.seconds("ending") if "ending" in facts else None,
        over=fields.seconds("over") if "over" in facts else None,
        timeout_cause=fields.cause("timeout_kind") if "over" in facts else TreeCause.TIMEOUT,
        command=fields.text("command", "")[:_COMMAND_CHARS],
    )


def started(attempt: Attempt, facts: Mapping[str, Any]) -> AttemptStarted:
    """Raises RecordError."""
    fields = _Fields("its note of the start", facts)
    return AttemptStarted(
        step=attempt.step,
        token=attempt.token,
        pid=fields.whole("pid", 1),
        started_at=time_of(fields.whole("at", 0, _LATEST)),
    )


def end_of(attempt: Attempt, facts: Mapping[str, Any]) -> EndRecord:
    """Raises RecordError."""
    return EndRecord(
        event=ended(attempt, facts),
        unsynced=_Fields("its end record", facts).flag("unsynced", False),
        survivors=survivors(facts),
    )


def ended(attempt: Attempt, record: Mapping[str, Any]) -> AttemptEnded:
    """Accepts records of older shims, which lack newer fields. Raises RecordError.

    A step whose outputs could not be stored has failed, whatever its exit code, because later steps would miss them.
    `error` says so.
    """
    fields = _Fields("its end record", record)
    cause = fields.text("cause")
    if cause != _NO_START and cause not in tuple(TreeCause):
        raise fields.wrong("cause")
    error = fields.text("error")
    if fields.flag("outputs_lost", False):
        error = f"{error}; {OUTPUTS_LOST}" if error else OUTPUTS_LOST
    signals = fields.items("signals", _SIGNALS_MOST)
    if not all(isinstance(each, str) and each.isascii() for each in signals):
        raise fields.wrong("signals")
    return AttemptEnded(
        step=attempt.step,
        token=attempt.token,
        ending=TreeEnding(
            cause=TreeCause.EXITED if cause == _NO_START else TreeCause(cause),
            signals=tuple(signals),
            leftovers=fields.whole("leftovers"),
            survivors=fields.whole("survivors"),
            proved_empty=fields.flag("proved_empty"),
            took=fields.seconds("took"),
            survivor_pids=tuple(pid for pid, _ in survivors(record)),
            limit=fields.text("limit", ""),
            cgroup=fields.flag("cgroup", False),
        ),
        started_at=time_of(fields.whole("started_at", 0, _LATEST)),
        finished_at=time_of(fields.whole("finished_at", 0, _LATEST)),
        not_started=cause == _NO_START,
        error=error,
        pid=fields.whole("pid") or None,
        exit_code=fields.whole_or_none("exit_code", -_CODES, _CODES),
        signal=fields.whole_or_none("signal", 1, 255),
        resources=ResourceUse(
            user_time=fields.seconds("user_time"),
            system_time=fields.seconds("system_time"),
            max_rss_bytes=fields.whole("max_rss"),
        ),
        stdout_bytes=fields.whole("stdout_bytes"),
        stderr_bytes=fields.whole("stderr_bytes"),
        dropped_bytes=fields.whole("dropped"),
        result=parse_result(fields.text("result", "")),
        outputs=parse_outputs(fields.text("output", "")),
    )


def survivors(record: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Pid and start time of the named processes that could not be ended. Raises RecordError."""
    fields = _Fields("its end record", record)
    pairs = fields.items("survivor_pids", _SURVIVORS_MOST, [])
    for pair in pairs:
        whole = isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)
        if not whole or not all(0 <= number <= _MOST for number in pair):
            raise fields.wrong("survivor_pids")
    return tuple((pid, start) for pid, start in pairs)
