"""Schedules that are due once per boot, compared with the boots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faults.timed import Timed
from faults.timed_checker import Ledger, Line
from faults.timeline import NEAR, Timeline, maybe_in, moment, surely_in


def check_boots(workflows: Sequence[Timed], ledger: Ledger, time: Timeline) -> Iterator[str]:
    """One line per schedule and boot, for the moment at which a daemon first noticed that boot.

    A schedule that was stored after the first one was may have its line at the next start of a daemon.
    """
    spans = _joined(time)
    for workflow in workflows:
        lines = ledger.of(f"{workflow.name}/0")
        for line in lines:
            if not any(span.first <= line.due <= span.last for span in spans):
                yield f"no boot was then: {line}"
            yield from _check_line(workflow, line, time)
        for span in spans:
            found = sum(span.first <= line.due <= span.last for line in lines)
            if not span.least <= found <= span.most:
                yield f"{found} lines of {workflow.name} for {span.most} boots at {moment(span.first)}"
    for span in spans:
        own = [line for workflow in workflows for line in ledger.of(f"{workflow.name}/0")]
        due = {line.due for line in own if span.first <= line.due <= span.last}
        if len(due) > span.most:
            yield f"{span.most} boots were noticed at {len(due)} times"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Shown times at which boots were noticed; of how many, and how many lines each schedule has for them."""

    first: float
    last: float
    least: int
    most: int


def _joined(time: Timeline) -> list[_Span]:
    """A clock that was set back may show the same time at two boots: those are looked at together."""
    spans: list[_Span] = []
    for number, (began, served) in enumerate(time.boots):
        first, last = time.shown(began) - NEAR, time.shown(served) + NEAR
        least, most = min(number, 1), 1
        for other in [span for span in spans if span.first <= last and first <= span.last]:
            spans.remove(other)
            first, last = min(first, other.first), max(last, other.last)
            least, most = least + other.least, most + other.most
        spans.append(_Span(first=first, last=last, least=least, most=most))
    return spans


def _check_line(workflow: Timed, line: Line, time: Timeline) -> Iterator[str]:
    moments = [at for at in time.moments(line.at) if not time.was_away(at)]
    if not moments:
        yield f"decided while nobody was there: {line}"
    if line.reason == "disabled":
        if not any(maybe_in(workflow.disabled, at) for at in moments):
            yield f"it was enabled: {line}"
    elif moments and all(surely_in(workflow.disabled, at) for at in moments):
        yield f"it was disabled: {line}"
    elif workflow.shut_until("UTC", line.at) is not None:
        if not line.reason.startswith("blackout until "):
            yield f"in a blackout: {line}"
    elif line.outcome != "FIRED":
        yield f"{line.outcome} instead of FIRED: {line}"
