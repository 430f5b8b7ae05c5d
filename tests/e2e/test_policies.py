"""Cases of the policy table with real processes: the same ends as by the rules alone.

All runs are started at once; those that something has to happen to wait until it is their turn. A virtual second is
a fraction of a real one. What ends by itself does so at once, but not before every step that hangs has begun.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from helpers.daemon import Daemon, cause_name, run_state, running_daemon, step_states, steps_of
from helpers.wait import wait_until
from toban.definition import parse_duration
from toban.v1 import dead_letter_pb2, run_pb2

TABLE = Path(__file__).parents[1] / "unit" / "domain" / "policy_cases.yaml"
SECONDS = (0.2, 1.0, 5.0)
"""What a virtual second is; a case whose time was over too early on a busy machine is played again with the next."""
# Those that take their time, or have little of it, are the first to be started.
CHOSEN = """
the loop's timeout is not retried
abort wins over a later timeout
run timeout ends a back-off
run timeout beats every policy
step timeout is a failure that may be retried
a step without output is ended and may be retried
abort cancels and skips
abort skips what waits
continue goes on
skip is fail-late
retry succeeds
retry exhausted aborts with a dead letter
retry exhausted continues
retries come before any policy
only the codes that retry names are retried
non-retryable is not retried
cannot start is not retried
fatal beats continue
success codes
lost fails
lost reruns when allowed
cancel reaches running and waiting
cancel during back-off
when false satisfies
when that cannot be evaluated fails
for_each abort cancels siblings
for_each continue runs them all
for_each retries per instance
for_each with checks
check loops
a check loops with an interval
cancel during an interval
check exhausted aborts
check exhausted continues
a killed check is retried alone
a lost check reruns when allowed
retries start anew each iteration
out of scope satisfies
approval rejected
approval given
child cancelled by somebody else
finally steps run after an abort
finally steps run after a fail-late failure
finally steps run after a cancel
finally steps run after the run's timeout
finally steps run in every scope
a failed finally step does not hide a success
finally steps go on after one of them failed
abort ends only the other finally steps
a finally step is retried and leaves a dead letter
finally steps for each item
""".strip().splitlines()
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in YAML(typ="safe").load(TABLE.read_text(encoding="utf-8"))
}
CHECK = ".check"
HANGING = ("hang", "hang_ignoring_term")
OF_TIME = ("timeout", "idle_timeout", "run_timeout")
CHILD = """
name: child
description: Stays until somebody cancels it
steps: [{name: stay, run: exec sleep 600}]
"""


@dataclass(frozen=True, slots=True)
class Played:
    """A case that was started; `witness` is where its processes leave their marks."""

    case: Mapping[str, Any]
    workflow: str
    run_id: str
    witness: Path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("policies") / "state") as daemon:
        daemon.apply(CHILD)
        yield daemon


@pytest.fixture(scope="module")
def played(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """All of them, under way."""
    return {
        name: play(daemon, f"case-{number}", CASES[name], first_second(name), tmp_path_factory)
        for number, name in enumerate(CHOSEN)
    }


def first_second(name: str) -> float:
    """Those that something has to happen to must still wait for it when it is their turn."""
    return SECONDS[-1] if "events" in CASES[name] else SECONDS[0]


def play(
    daemon: Daemon,
    workflow: str,
    case: Mapping[str, Any],
    second: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    witness = tmp_path_factory.mktemp("witness")
    daemon.apply(json.dumps(definition(workflow, case, witness, second)))
    request = run_pb2.StartRunRequest(workflow=workflow, only=case.get("scope", ()))
    run_id = daemon.runs.StartRun(request, timeout=20).run.id
    return Played(case, workflow, run_id, witness)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHOSEN)
def test_case(
    daemon: Daemon,
    played: dict[str, Played],
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    this = played[name]
    run = to_its_end(daemon, this)
    for second in SECONDS[1:]:
        if was_too_slow(daemon, this, run):
            this = play(daemon, f"{this.workflow}-again", this.case, second, tmp_path_factory)
            run = to_its_end(daemon, this)
    assert_as_expected(daemon, this, run)
    assert_processes_as_told(this, run)


def to_its_end(daemon: Daemon, this: Played) -> run_pb2.Run:
    for event in this.case.get("events", {}).values():
        let_happen(daemon, this, event)
    cancel_children(daemon, this)
    return daemon.wait_run(this.run_id, 200)


def was_too_slow(daemon: Daemon, this: Played, run: run_pb2.Run) -> bool:
    """Whether a time was over before the processes had come as far as the case has it."""
    if not any({"timeout", "idle_timeout"} & each.keys() for each in (this.case, *this.case["steps"].values())):
        return False
    if run_state(run) == "TIMED_OUT" != this.case["expect"]["run"]:
        return True
    executions = daemon.processes(run.id)
    for told, words in this.case["outcomes"].items():
        hangs = [number for number, word in enumerate(words, 1) if word in HANGING]
        mark = this.witness / told
        begun = len(mark.read_text().splitlines()) if mark.exists() else 0
        own = [cause_name(each.ending) for each in executions if each.step == told]
        # One that hangs has to be reached, and none of the others may be ended for want of time.
        if begun < (hangs[0] if hangs else 1) or any(
            cause in OF_TIME and word not in HANGING for cause, word in zip(own, words, strict=False)
        ):
            return True
    return False


# -- a case as a definition


def definition(workflow: str, case: Mapping[str, Any], witness: Path, second: float) -> dict[str, Any]:
    """The case as a workflow whose steps do what its outcomes say."""
    outcomes: Mapping[str, Sequence[int | str]] = case.get("outcomes", {})
    made: dict[str, Any] = {"name": workflow, "description": case["name"]}
    for group in ("steps", "finally"):
        # Those that run at the same time wait for each other.
        own = {told: words for told, words in outcomes.items() if owner(told) in case.get(group, {})}
        given = case.get(group, {}).items()
        made |= {group: {name: step(name, fields, own, witness, second) for name, fields in given}} if given else {}
    if "concurrency" in case:
        made["concurrency"] = case["concurrency"]
    if "timeout" in case:
        made["timeout"] = scaled(case["timeout"], second)
    return made


def owner(told: str) -> str:
    """The step of an instance or a check."""
    return told.removesuffix(CHECK).partition("[")[0]


def step(
    name: str,
    given: Mapping[str, Any],
    outcomes: Mapping[str, Sequence[int | str]],
    witness: Path,
    second: float,
) -> dict[str, Any]:
    given = in_real_time(given, second)
    if given.get("job_type") in ("approval", "workflow"):
        return given
    retry = {"delay": "250ms", "jitter": 0, **given.get("retry", {})}
    given["retry"] = in_real_time(retry, second)
    if "nostart" in outcomes.get(name, ()):
        return {**given, "job_type": "exec", "target": str(witness / "there-is-no-such-program")}
    given["run"] = script(name, "", outcomes, witness)
    if "completion_check" in given:
        check = in_real_time(given["completion_check"], second)
        given["completion_check"] = {**check, "run": script(name, CHECK, outcomes, witness)}
    return given


def in_real_time(fields: Mapping[str, Any], second: float) -> dict[str, Any]:
    durations = ("timeout", "idle_timeout", "kill_grace", "interval", "delay", "max_delay")
    return {name: scaled(value, second) if name in durations else value for name, value in fields.items()}


def scaled(duration: float | str, second: float) -> float:
    return second * (parse_duration(duration) if isinstance(duration, str) else duration)


def script(name: str, suffix: str, outcomes: Mapping[str, Sequence[int | str]], witness: Path) -> str:
    """Leaves a mark for each launch, and does what its outcomes say of that launch."""
    own = {
        told.removesuffix(CHECK): words
        for told, words in outcomes.items()
        if told.removesuffix(CHECK).split("[")[0] == name and told.endswith(CHECK) == bool(suffix)
    }
    hanging = [told for told, words in outcomes.items() if set(words) & set(HANGING) and not told.endswith(CHECK)]
    marks = f'{shlex.quote(str(witness))}/"$TOBAN_STEP"{suffix}'
    deaf = any("hang_ignoring_term" in words for words in own.values())
    lines = ["trap '' TERM"] if deaf else []
    lines += [f"echo launched >> {marks}", 'case "$TOBAN_STEP" in']
    for told, words in own.items():
        lines += [f"{shlex.quote(told)})", f"case $(wc -l < {marks}) in"]
        lines += [f"{number}) {doing(word)} ;;" for number, word in enumerate(words, 1)]
        lines += ["esac ;;"]
    lines += ["esac", "code=${code:-0}"]
    for other in hanging:
        mark = shlex.quote(str(witness / other))
        lines.append(f"until [ -s {mark} ]; do sleep 0.02; done")
    return "\n".join([*lines, "exit $code"])


def doing(word: int | str) -> str:
    match word:
        case int():
            return f"code={word}"
        case "hang" | "hang_ignoring_term":
            return "exec sleep 600"
        case "slow":
            return "sleep 0.5"
        case "killed":
            return "kill -KILL $$"
        case "lost":
            # The parent is the supervisor, the only one that could have told how it ends.
            return "kill -KILL $PPID; exec sleep 600"
        case _:
            raise AssertionError(f"no process can be made to do {word!r}")


# -- what happens to it


def let_happen(daemon: Daemon, this: Played, event: str) -> None:
    """When nothing moves any more by itself: a process hangs, a retry is far away, or a person is waited for."""
    wait_until(lambda: stands_still(daemon.get_run(this.run_id), this), "it does not stand still")
    what, _, step = event.partition(" ")
    match what:
        case "cancel":
            daemon.cancel(this.run_id)
        case "approve" | "reject":
            approve = what == "approve"
            decision = run_pb2.APPROVAL_DECISION_APPROVED if approve else run_pb2.APPROVAL_DECISION_REJECTED
            request = run_pb2.DecideApprovalRequest(run_id=this.run_id, step=step, decision=decision)
            daemon.runs.DecideApproval(request, timeout=20)
        case _:
            raise AssertionError(f"nobody knows how to {event!r}")


def stands_still(run: run_pb2.Run, this: Played) -> bool:
    outcomes = this.case.get("outcomes", {})
    hanging = [step for step, words in outcomes.items() if words[0] in HANGING]
    if hanging:
        return all((this.witness / step).exists() for step in hanging)
    return any(step.waiting_for or step.HasField("not_before") for step in run.steps)


def cancel_children(daemon: Daemon, this: Played) -> None:
    for name, words in this.case.get("outcomes", {}).items():
        if "child_cancelled" in words:
            daemon.cancel(wait_until(partial(child_of, daemon, this.run_id, name), "no child run"))


def child_of(daemon: Daemon, run_id: str, step: str) -> str:
    return steps_of(daemon.get_run(run_id))[step].child_run


# -- what became of it


def assert_as_expected(daemon: Daemon, this: Played, run: run_pb2.Run) -> None:
    expect = dict(this.case["expect"])
    steps = steps_of(run)
    assert run_state(run) == expect.pop("run"), run.error_message
    for step, count in expect.pop("attempts", {}).items():
        owner = steps[step.removesuffix(CHECK)]
        found = owner.checks if step.endswith(CHECK) else owner.attempts
        assert (step, found) == (step, count)
    for step, count in expect.pop("iterations", {}).items():
        assert (step, steps[step].iteration) == (step, count)
    assert run.failed_steps == expect.pop("failed_steps", run.failed_steps)
    assert run.incomplete_steps == expect.pop("incomplete_steps", run.incomplete_steps)
    request = dead_letter_pb2.ListDeadLettersRequest(workflow=this.workflow)
    letters = daemon.dead_letters.ListDeadLetters(request, timeout=20).dead_letters
    assert len(letters) == expect.pop("dead_letters", len(letters))
    states = step_states(run)
    assert {step: states[step] for step in expect} == expect


def assert_processes_as_told(this: Played, run: run_pb2.Run) -> None:
    """As many attempts and checks as the run tells of have really been started, and no others."""
    told: Counter[str] = Counter()
    for step in run.steps:
        if not step.instances and step.job_type == run_pb2.JOB_TYPE_SHELL:
            told.update({step.id: step.attempts, f"{step.id}{CHECK}": step.checks})
    marks = {path.name: len(path.read_text().splitlines()) for path in this.witness.iterdir()}
    assert marks == dict(+told)
