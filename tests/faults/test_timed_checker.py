"""The checker of schedules is believed because it can fail: each defect, forged into a true ledger, is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from faults.timed import Spec, Timed, Version
from faults.timed_checker import Ledger, Line, Started, check_timed
from faults.timeline import Timeline

START = 1_800_000_000.0
END = START + 60
AWAY = (START + 20.5, START + 27.2)
BACK_AT = START + 27.4
STOOD_FOR = (START + 22, START + 24)


class NoDial:
    def set(self, offset: float) -> None:
        """Nobody looks at it."""


class Forged:
    """A workflow that is due every two seconds, and a daemon that was away for seven."""

    def __init__(self) -> None:
        self.time = Timeline(NoDial())
        self.time.away.append(AWAY)
        self.time.gone.append(AWAY)
        version = Version(
            spec=Spec(cron="*/2 * * * * *"),
            asked=START - 0.2,
            stored=START - 0.1,
            end_asked=math.inf,
            end_stored=math.inf,
        )
        self.workflow = Timed(name="w", overlap="skip", run="true", versions=[[version]])
        self.lines: dict[float, Line] = {}
        self.runs: dict[str, Started] = {}
        for number in range(0, 62, 2):
            due = START + number
            if due not in STOOD_FOR:
                self.start(due, due + 0.01 if due != START + 26 else BACK_AT)
        last = self.of(26)
        for due in STOOD_FOR:
            self.lines[due] = replace(last, due=due, outcome="CAUGHT_UP")
        self.runs[last.run] = replace(self.runs[last.run], missed=STOOD_FOR)
        self.doubled: list[Line] = []

    def start(self, due: float, at: float) -> None:
        run = f"run-{due - START:g}"
        self.lines[due] = Line(schedule="w/0", due=due, outcome="FIRED", at=at, reason="", run=run)
        self.runs[run] = Started(
            id=run, workflow="w", schedule="w/0", due=due, missed=(), created=at
        )

    def of(self, number: float) -> Line:
        return self.lines[START + number]

    def change(self, number: float, **fields: object) -> None:
        self.lines[START + number] = replace(self.of(number), **fields)  # type: ignore[arg-type]

    def without_run(self, number: float, outcome: str, reason: str = "") -> None:
        del self.runs[self.of(number).run]
        self.change(number, outcome=outcome, reason=reason, run="")

    def check(self) -> list[str]:
        lines = [*self.lines.values(), *self.doubled]
        return check_timed([self.workflow], Ledger(lines=lines, runs=self.runs, end=END), self.time)


def _lose(made: Forged) -> None:
    del made.runs[made.of(8).run]
    del made.lines[START + 8]


def _forget_the_line(made: Forged) -> None:
    del made.lines[START + 8]


def _stand_for_it_too(made: Forged) -> None:
    run = made.runs["run-26"]
    made.runs["run-26"] = replace(run, missed=(START + 18, *STOOD_FOR))


def _catch_up_apart(made: Forged) -> None:
    """As `run_all` would."""
    made.runs["run-26"] = replace(made.runs["run-26"], missed=())
    for due in STOOD_FOR:
        made.start(due, BACK_AT)
        made.change(due - START, outcome="CAUGHT_UP")


def _leave_out_missed(made: Forged) -> None:
    """As `skip` would."""
    made.runs["run-26"] = replace(made.runs["run-26"], missed=())
    for due in STOOD_FOR:
        made.change(due - START, outcome="MISSED", run="")


def _fire_too_often(made: Forged) -> None:
    (versions,) = made.workflow.versions
    versions[0].spec = replace(versions[0].spec, most=12)


def _start_though_disabled(made: Forged) -> None:
    made.workflow.disabled.append((START + 33, START + 33.1, START + 50, START + 50.1))


FORGERIES: list[tuple[Callable[[Forged], object], str]] = [
    (_lose, "no line for"),
    (_forget_the_line, "differ about"),
    (lambda made: made.doubled.append(made.of(8)), "2 lines for"),
    (lambda made: made.start(START + 9, START + 9.01), "it was not due"),
    (lambda made: made.change(8, at=START + 7.9), "early"),
    (lambda made: made.change(8, at=START + 15.1), "late"),
    (lambda made: made.change(22, at=START + 22.1), "while nobody was there"),
    (lambda made: made.runs.pop("run-8"), "its run does not exist"),
    (lambda made: made.change(8, run=""), "it has no run"),
    (lambda made: made.change(8, outcome="MISSED"), "it has a run"),
    (lambda made: made.without_run(8, "MISSED"), "MISSED instead of FIRED"),
    (lambda made: made.without_run(8, "SKIPPED", "disabled"), "it was enabled"),
    (lambda made: made.without_run(8, "SKIPPED", "tired"), "SKIPPED instead of FIRED"),
    (
        lambda made: made.without_run(8, "SKIPPED", "overlap: run gone is active"),
        "SKIPPED instead of FIRED",
    ),
    (lambda made: made.change(8, schedule="w/1"), "nobody made this schedule"),
    (_stand_for_it_too, "2 runs stand for"),
    (_catch_up_apart, "CAUGHT_UP instead of stood for"),
    (_leave_out_missed, "MISSED instead of stood for"),
    (_fire_too_often, "it was not due"),
    (_start_though_disabled, "it was disabled"),
]


def test_a_true_ledger_has_no_defect() -> None:
    assert Forged().check() == []


def test_an_overlap_with_a_run_that_exists_is_no_defect() -> None:
    made = Forged()
    made.without_run(8, "SKIPPED", "overlap: run run-6 is active")
    assert made.check() == []


@pytest.mark.parametrize(("forge", "found"), FORGERIES)
def test_each_defect_is_found(forge: Callable[[Forged], object], found: str) -> None:
    made = Forged()
    forge(made)
    assert any(found in text for text in made.check()), made.check()
