"""Reads the cases of the policy table, without any code of the daemon."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toban.definition import parse_duration

REACTION = 0.1
"""From the signal to the end of a process that heeds it."""
COLLECTING = 0.03
"""What the collection of outputs takes."""
EVALUATING = 0.001
"""What it takes to find out what `when` and `for_each` say."""
SLOW = 10
"""So many times longer takes what is slow."""
SLOWLY = ("hang", "hang_ignoring_term", "slow")
"""What goes on until something ends it."""
RERUNS = 3

CLASSES = ("RETRYABLE_TRANSIENT", "RETRYABLE_RATE_LIMIT", "NON_RETRYABLE", "FATAL")
RETRYABLE = CLASSES[:2]

Case: TypeAlias = Mapping[str, Any]
Spec: TypeAlias = Mapping[str, Any]
Lasts: TypeAlias = Callable[[str, int], float]


@dataclass(frozen=True, kw_only=True)
class Ends:
    """What came of a run. States are as in the table: `SKIPPED(when)`."""

    run: str
    steps: Mapping[str, str]
    attempts: Mapping[str, int]
    iterations: Mapping[str, int]
    failed: int
    incomplete: int
    dead_letters: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a process ended: `done`, `not yet`, `failed`, `lost` or `stopped`; or that it never came to be."""

    word: str
    kind: str = ""
    code: int | None = None
    final: bool = False
    """A failure that nothing repeats, whatever its class."""


def duration(value: Any) -> float:
    return parse_duration(value) if isinstance(value, str) else float(value)


def literal(text: str) -> Any:
    """The few expressions that cases use; ValueError for the others, which have no value."""
    return json.loads(text)


def one_second(name: str, number: int) -> float:
    return 1.0


def final_policy(spec: Spec) -> str:
    policy: str = spec.get("on_failure", "abort")
    return spec.get("on_failure_exhausted", "abort") if policy == "retry" else policy


def kept_of(spec: Spec) -> bool:
    """Whether anything is collected after an attempt."""
    return bool(spec.get("outputs") or spec.get("stop_when_unchanged"))


def retries_of(spec: Spec) -> int:
    retries: int = spec.get("max_retries", 3 if spec.get("on_failure") == "retry" else 0)
    return retries


def retried(spec: Spec, verdict: Verdict) -> bool:
    on = spec.get("retry", {}).get("on", RETRYABLE)
    return verdict.kind in RETRYABLE and (verdict.kind in on or verdict.code in on)


def delay(spec: Spec, verdict: Verdict, retry: int) -> float:
    given = spec.get("retry", {})
    base = duration(given.get("delay", 1)) * given.get("backoff", 2) ** (retry - 1)
    if verdict.kind == "RETRYABLE_RATE_LIMIT":
        base *= 10
    return float(min(base, duration(given.get("max_delay", 300))))


def check_timeout(spec: Spec) -> Any:
    own = spec["completion_check"].get("timeout")
    whole = spec.get("timeout")
    return own if own is not None or whole is None else duration(whole) / 4


def verdict_of(outcome: int | str, spec: Spec, check: bool) -> Verdict:
    """What a process that ended by itself has achieved."""
    match 0 if outcome in ("slow", "missing", "same") else outcome:
        case "lost":
            return Verdict(word="lost")
        case "lost_unproved" | "nostart" | "child_cancelled":
            return Verdict(word="failed", kind="NON_RETRYABLE")
        case "limit" | "outside" | "killed" | "child_failed" | "child_timed_out":
            return Verdict(word="failed", kind="RETRYABLE_TRANSIENT")
        case str(kind) if kind in CLASSES:
            code = 1
        case int(code):
            if code in spec.get("success_codes", [0]):
                return Verdict(word="done", code=code)
            kind = "NON_RETRYABLE" if code in (64, 78, 126, 127) else "RETRYABLE_TRANSIENT"
            kind = spec.get("error_classes", {}).get(code, kind)
        case _:
            raise ValueError(f"unknown outcome {outcome!r}")
    if check and kind == "RETRYABLE_TRANSIENT":
        return Verdict(word="not yet")
    return Verdict(word="failed", kind=kind, code=code)
