"""The checker of schedules is believed because it can fail: each defect, forged into a true ledger, is found."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from faults.backfills import EVERY, Asked, Past, check_backfills
from faults.pulse import Pulse
from faults.timed import Spec, Timed, Version
from faults.timed_boots import check_boots
from faults.timed_checker import Ledger, Line, check_timed
from faults.timed_runs import REPLACED, Started, Witnessed, check_runs_done
from faults.timeline import Timeline
from helpers.wait import wait_until

START = 1_800_000_000.0
END = START + 60
AWAY = (START + 20.5, START + 27.2)
BACK_AT = START + 27.4
STOOD_FOR = (START + 22, START + 24)
BOOTED = AWAY[1] - 0.6
DRAINED = (START + 33, START + 33.1, START + 50, START + 50.1)
SHUT_UNTIL = "blackout until 2027-01-15T08:00:26+00:00"


class NoDial:
    def set(self, offset: float) -> None:
        """Nobody looks at it."""


class Forged:
    """A workflow that is due every two seconds, and one that is at each boot; a daemon that was away for seven.

    Every run is done within half a second, and the machine went down once.
    """

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
        self.workflow = Timed(name="w", overlap="skip", seconds=1, versions=[[version]])
        self.booting = Timed(name="b", overlap="allow", seconds=1)
        self.time.boots += [(START - 9, START - 8), (AWAY[1] - 1, AWAY[1])]
        self.time.cut.append(AWAY[0] + 0.1)
        self.told = Witnessed()
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
        self.boot(BOOTED)

    def boot(self, due: float) -> None:
        run = f"boot-{due - START:g}"
        line = Line(schedule="b/0", due=due, outcome="FIRED", at=BACK_AT, reason="", run=run)
        self.lines[due] = line
        self._run(Started(id=run, workflow="b", schedule="b/0", due=due, missed=(), created=BACK_AT))

    def _run(self, run: Started) -> None:
        self.runs[run.id] = run
        self.told.began[run.id] = [run.created + 0.1]
        self.told.done[run.id] = run.created + 0.5

    def start(self, due: float, at: float) -> None:
        run = f"run-{due - START:g}"
        self.lines[due] = Line(schedule="w/0", due=due, outcome="FIRED", at=at, reason="", run=run)
        number = int(due - START)
        self._run(Started(id=run, workflow="w", schedule="w/0", due=due, missed=(), created=at, number=number))

    def of(self, number: float) -> Line:
        return self.lines[START + number]

    def change(self, number: float, **fields: object) -> None:
        self.lines[START + number] = replace(self.of(number), **fields)  # type: ignore[arg-type]

    def change_run(self, number: float, **fields: object) -> None:
        run = self.runs[self.of(number).run]
        self.runs[run.id] = replace(run, **fields)  # type: ignore[arg-type]

    def without_run(self, number: float, outcome: str, reason: str = "") -> None:
        self.forget(self.of(number).run)
        self.change(number, outcome=outcome, reason=reason, run="")

    def forget(self, run: str) -> None:
        del self.runs[run], self.told.began[run], self.told.done[run]

    def check(self) -> list[str]:
        lines = [*self.lines.values(), *self.doubled]
        ledger = Ledger(lines=lines, runs=self.runs, end=END, read=END, told=self.told)
        boots = [self.booting]
        return [
            *check_timed([self.workflow], ledger, self.time, ["b/0"]),
            *check_boots(boots, ledger, self.time),
            *check_runs_done([self.workflow, *boots], self.runs, self.told, self.time),
        ]


def _lose(made: Forged) -> None:
    made.forget(made.of(8).run)
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
    made.workflow.disabled.append(DRAINED)


def _shut(made: Forged) -> None:
    """A true ledger of a workflow with a blackout: due times in it are not caught up."""
    made.workflow.blackout = ("20 * * * * */6s",)
    made.runs["run-26"] = replace(made.runs["run-26"], missed=())
    made.forget("run-20")
    for number in (20, 22, 24):
        made.change(number, outcome="SKIPPED", reason=SHUT_UNTIL, run="")


def _start_in_a_blackout(made: Forged) -> None:
    _shut(made)
    made.start(START + 20, START + 20.01)


def _put_off(made: Forged) -> None:
    _shut(made)
    made.runs["run-26"] = replace(made.runs["run-26"], missed=STOOD_FOR)
    for due in STOOD_FOR:
        made.change(due - START, outcome="CAUGHT_UP", reason="", run="run-26")


def _tell_another_end(made: Forged) -> None:
    _shut(made)
    made.change(20, reason="blackout until 2027-01-15T08:00:27+00:00")


def _take_turns(made: Forged) -> None:
    """Two that were made together, in the wrong order."""
    made.workflow.overlap = "queue"
    began, done = made.told.began, made.told.done
    began["run-6"], began["run-8"] = began["run-8"], began["run-6"]
    done["run-6"], done["run-8"] = done["run-8"], done["run-6"]


def _be_replaced_by(made: Forged, other: str) -> None:
    made.workflow.overlap = "replace"
    made.change_run(8, state="CANCELLED", error=f"{REPLACED}{other}")
    made.told.signalled["run-8"] = made.told.done.pop("run-8")


def _boot_twice(made: Forged) -> None:
    made.boot(BOOTED + 0.1)


def _skip_the_boot(made: Forged, reason: str) -> None:
    made.forget(made.lines[BOOTED].run)
    made.lines[BOOTED] = replace(made.lines[BOOTED], outcome="SKIPPED", reason=reason, run="")


def _forget_the_boot(made: Forged) -> None:
    made.forget(made.lines.pop(BOOTED).run)


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
        lambda made: made.without_run(8, "SKIPPED", "overlap: run w#1000 is active"),
        "SKIPPED instead of FIRED",
    ),
    (lambda made: made.change(8, schedule="w/1"), "nobody made this schedule"),
    (_stand_for_it_too, "2 runs stand for"),
    (_catch_up_apart, "CAUGHT_UP instead of stood for"),
    (_leave_out_missed, "MISSED instead of stood for"),
    (_fire_too_often, "it was not due"),
    (_start_though_disabled, "it was disabled"),
    (lambda made: made.time.drained.append(DRAINED), "it was draining"),
    (lambda made: made.without_run(8, "SKIPPED", "draining"), "nobody had drained it"),
    (_start_in_a_blackout, "FIRED instead of blackout"),
    (_put_off, "stood for instead of blackout"),
    (_tell_another_end, "instead of blackout"),
    (lambda made: made.without_run(8, "SKIPPED", SHUT_UNTIL), "instead of FIRED"),
    (
        lambda made: made.without_run(18, "SKIPPED", "overlap: run w#4 is active"),
        "SKIPPED instead of FIRED",
    ),
    (
        lambda made: made.without_run(8, "SKIPPED", "the queue of workflow 'w' is full: 100 runs are waiting"),
        "SKIPPED instead of FIRED",
    ),
    (lambda made: made.told.began["run-8"].append(START + 9), "more than once"),
    (lambda made: made.told.began.update(gone=[START]), "executed and does not exist"),
    (lambda made: made.told.done.pop("run-8"), "did not come to its end"),
    (lambda made: made.told.done.update({"run-8": START + 11}), "under way at once"),
    (_take_turns, "began after it"),
    (lambda made: made.change_run(8, state="RUNNING"), "has not come to its end"),
    (lambda made: made.change_run(8, state="FAILED"), "the machine did not go down"),
    (lambda made: made.change_run(8, state="CANCELLED"), "nobody cancelled it"),
    (lambda made: _be_replaced_by(made, "w#6"), "the other one is older"),
    (_forget_the_boot, "0 lines of b"),
    (_boot_twice, "2 lines of b"),
    (lambda made: made.boot(START + 11), "no boot was then"),
    (lambda made: _skip_the_boot(made, "disabled"), "it was enabled"),
    (lambda made: _skip_the_boot(made, "tired"), "SKIPPED instead of FIRED"),
]


def test_a_true_ledger_has_no_defect() -> None:
    assert Forged().check() == []


def test_an_overlap_with_a_run_that_exists_is_no_defect() -> None:
    made = Forged()
    made.without_run(8, "SKIPPED", "overlap: run w#6 is active")
    assert made.check() == []


@pytest.mark.parametrize(
    "forge",
    [
        _shut,
        lambda made: _be_replaced_by(made, "w#10"),
        lambda made: made.change_run(20, state="FAILED"),
    ],
)
def test_what_has_a_reason_is_no_defect(forge: Callable[[Forged], object]) -> None:
    made = Forged()
    forge(made)
    assert made.check() == []


def test_nobody_decides_while_the_clock_shows_less_again() -> None:
    """It was due a moment before the daemon died, and was not when it came back."""
    time = Timeline(NoDial())
    time.away.append((START + 10, START + 12))
    time.offsets += [(START + 11, -60.0), (START + 40, 0.0)]
    time.woken += [START + 12, START + 40]
    assert time.decided_by(START + 9.5, START) == START + 46
    assert time.decided_by(START + 1, START) == START + 7
    assert time.decided_by(START + 9999, START) == START + 9999 + 6


def test_nobody_is_blamed_while_the_machine_holds_everybody_up() -> None:
    time = Timeline(NoDial())
    assert time.decided_by(START + 2, START) == START + 8
    assert not time.broken(START + 2, START + 3)
    time.stalls.append((START + 1, START + 9))
    assert time.decided_by(START + 2, START) == START + 15
    assert time.noticed_by(START + 2) == START + 15
    assert time.decided_by(START + 30, START) == START + 36
    assert time.broken(START + 2, START + 3)
    assert time.held_up(START, START + 2) == 8
    assert time.held_up(START + 10, START + 12) == 0
    assert not time.was_away(START + 5)


def test_a_machine_that_holds_everybody_up_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = itertools.chain((0.0, 0.5, 0.5, 3.0), itertools.repeat(3.0))
    monkeypatch.setattr("faults.pulse.time", SimpleNamespace(time=lambda: next(shown)))
    stalls: list[tuple[float, float]] = []
    pulse = Pulse(tmp_path, stalls)
    pulse.start()
    try:
        wait_until(lambda: stalls, "nothing is noted")
    finally:
        pulse.stop()
    assert stalls == [(0.5, 3.0)]


def test_what_was_decided_before_the_daemon_was_killed_was_not_decided_by_nobody() -> None:
    """However long it took to kill it."""
    time = Timeline(NoDial())
    time.leave()
    before = time.away[-1][0]
    time.left()
    time.gone[-1] = (before + 5, math.inf)
    time.back(before + 9)
    assert not time.was_away(before + 4)
    assert time.was_away(before + 7)


@pytest.mark.parametrize(("forge", "found"), FORGERIES)
def test_each_defect_is_found(forge: Callable[[Forged], object], found: str) -> None:
    made = Forged()
    forge(made)
    assert any(found in text for text in made.check()), made.check()


class Backfilled:
    """Three past due times: a backfill of the first two, another of all of them, and one of the last with `again`."""

    def __init__(self) -> None:
        self.past = Past(timed=Timed(name="p", overlap="queue", seconds=0), first=START, last=START + 2 * EVERY)
        dues = list(self.past.dues())
        self.lines = [
            Line(schedule="p/0", due=due, outcome="CAUGHT_UP", at=END, reason="", run=f"run-{number}")
            for number, due in enumerate(dues)
        ]
        self.runs = {
            f"run-{number}": Started(
                id=f"run-{number}", workflow="p", schedule="p/0", due=due, missed=(), created=END, trigger="BACKFILL"
            )
            for number, due in enumerate((*dues, dues[2]))
        }
        first = {due: f"run-{number}" for number, due in enumerate(dues)}
        self.past.asked += [
            Asked(again=False, dues=dues[:2], runs={due: first[due] for due in dues[:2]}),
            Asked(again=False, dues=dues, runs=first),
            Asked(again=True, dues=dues[2:], runs={dues[2]: "run-3"}),
        ]

    def lose_run(self) -> None:
        del self.runs["run-1"]

    def start_twice(self) -> None:
        self.runs["more"] = replace(self.runs["run-0"], id="more")

    def start_another(self) -> None:
        self.runs["run-0"] = replace(self.runs["run-0"], trigger="SCHEDULE")

    def lose_line(self) -> None:
        del self.lines[0]

    def leave_skipped(self) -> None:
        self.lines[0] = replace(self.lines[0], outcome="SKIPPED", run="")

    def leave_out(self) -> None:
        self.past.asked[1] = replace(self.past.asked[1], runs=self.past.asked[0].runs)


@pytest.mark.parametrize(
    ("forge", "found"),
    [
        (Backfilled.lose_run, "has 0 runs instead of 1"),
        (Backfilled.start_twice, "has 2 runs instead of 1"),
        (Backfilled.start_another, "is none of a backfill"),
        (Backfilled.lose_line, "has 0 lines"),
        (Backfilled.leave_skipped, "its line is"),
        (Backfilled.leave_out, "a backfill of p answered"),
    ],
)
def test_each_defect_of_a_backfill_is_found(forge: Callable[[Backfilled], object], found: str) -> None:
    made = Backfilled()
    assert list(check_backfills([made.past], made.lines, made.runs)) == []
    forge(made)
    defects = list(check_backfills([made.past], made.lines, made.runs))
    assert any(found in text for text in defects), defects
