"""The daemon is killed with -9 while runs wait: for a time, a person, a check, a child, their turn. All of them go on.

What was under way is told apart by gates, at which steps are held until the test lets them go on.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, steps_of, waits_for
from helpers.gate import Gate
from helpers.processes import Process, alive, seen, state_of
from helpers.wait import wait_until
from toban.v1 import dead_letter_pb2, run_pb2

OUT = run_pb2.LOG_STREAM_STDOUT
SECOND = 1_000_000
LATE = 30 * SECOND
"""Microseconds that something may be late: the machine may be busy."""
ASK: dict[str, Any] = {"job_type": "approval"}
AFTER = {"run": "echo {{ steps.ask.result.note }}", "depends_on": ["ask"]}


@dataclass
class Life:
    daemon: Daemon
    directory: Path
    runs: dict[str, str] = field(default_factory=dict)
    before: dict[str, run_pb2.Run] = field(default_factory=dict)
    """As they were when the daemon was killed."""
    pids: dict[str, Process] = field(default_factory=dict)
    patience: int = 0
    """Seconds after which nobody had approved."""
    back_at: int = 0
    """Before the next one was started."""
    served_at: int = 0
    """When that one served."""

    def apply(self, name: str, steps: dict[str, Any], **fields: Any) -> None:
        env = {"WITNESS": f"{self.directory}/{name}.witness"}
        self.daemon.apply(json.dumps({"name": name, "description": "x", "env": env, **fields, "steps": steps}))

    def start(self, name: str, steps: dict[str, Any], **fields: Any) -> str:
        self.apply(name, steps, **fields)
        self.runs[name] = self.daemon.start_run(name)
        return self.runs[name]

    def held(self, name: str) -> str:
        """A script that is held at a gate of that name."""
        return f"read _ < {self.directory}/{name}.gate"

    def witness(self, name: str) -> list[str]:
        path = self.directory / f"{name}.witness"
        return path.read_text().splitlines() if path.exists() else []

    def now(self, name: str) -> run_pb2.Run:
        return self.daemon.get_run(self.runs[name])

    def ended(self, name: str) -> run_pb2.Run:
        return self.daemon.wait_run(self.runs[name])

    def downloaded(self, run: run_pb2.Run, step: str, name: str) -> bytes:
        request = run_pb2.DownloadArtifactRequest(run_id=run.id, step=step, name=name)
        answers = self.daemon.runs.DownloadArtifact(request, timeout=20)
        return b"".join(answer.data for answer in answers)

    def reaches(self, name: str, condition: Callable[[run_pb2.Run], bool]) -> run_pb2.Run:
        for _ in self.daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=self.runs[name]), timeout=60):
            run = self.now(name)
            if condition(run):
                return run
        raise AssertionError(f"it never was: {self.now(name)}")


def note(text: str) -> str:
    return f'echo {text} >> "$WITNESS"'


def backing_off(run: run_pb2.Run) -> bool:
    return any(step.HasField("not_before") for step in run.steps)


def prepare(life: Life) -> None:
    """Runs that wait for a time, a person, a check."""
    again = f"{note('$TOBAN_ATTEMPT')}; test $TOBAN_ATTEMPT -ge 2"
    soon = {"delay": "500ms", "jitter": 0}
    life.start("back-off-over", {"a": {"run": again, "max_retries": 3, "retry": soon}})
    life.start(
        "letter",
        {
            "a": {
                "run": f"{note('$TOBAN_ATTEMPT')}; test $TOBAN_ATTEMPT = 1 || {life.held('letter')}; exit 1",
                "on_failure": "retry",
                "max_retries": 1,
                "retry": {"delay": "1ms"},
            },
        },
    )
    life.start(
        "loop",
        {
            "a": {
                "run": note("run {{ iteration }}, {{ check.stdout }}"),
                "completion_check": {
                    "run": f"{note('check {{ iteration }}')}; echo said {{{{ iteration }}}}; "
                    f"test {{{{ iteration }}}} != 2 || {life.held('loop')}; test {{{{ iteration }}}} = 3"
                },
                "max_iterations": 5,
            }
        },
    )
    life.start(
        "each",
        {
            "a": {
                "run": f"{note('{{ item }}')}; test {{{{ item }}}} = w || {life.held('{{ item }}')}; "
                "echo {{ item }}!",
                "for_each": ["w", "x", "y", "z"],
                "max_parallel": 2,
            },
            "join": {
                "run": "echo {{ steps.a.stdout }} {{ steps.a.exit_code }}",
                "depends_on": ["a"],
            },
        },
    )
    life.start("approval", {"ask": ASK, "after": AFTER})
    life.start(
        "large",
        {
            "big": {"run": "head -c 100000 /dev/zero | tr '\\0' x | sed 's/^/text=/' >> $TOBAN_OUTPUT"},
            "hold": {"run": life.held("large"), "depends_on": ["big"]},
            "use": {
                "run": "echo {{ size(steps.big.outputs.text) }}",
                "depends_on": ["hold", "big"],
            },
        },
    )
    life.start("paused", {"a": {"run": life.held("paused")}, "b": {"run": note("b"), "depends_on": ["a"]}})


def prepare_children(life: Life) -> None:
    """Parents whose children are under way."""
    for name in ("held", "meanwhile"):
        life.apply(f"{name}-leaf", {"only": {"run": f"{note('begun')}; {life.held(name)}"}})
    endless = {"only": {"run": f"{note('begun')}; exec sleep 600", "kill_grace": "300ms"}}
    life.apply("endless-leaf", endless, overlap="queue", max_active_runs=2)
    leaves = {
        "held": "held-leaf",
        "meanwhile": "meanwhile-leaf",
        "endless": "endless-leaf",
        "cancelled": "endless-leaf",
    }
    for name, leaf in leaves.items():
        after = {"run": note("after"), "depends_on": ["child"]}
        life.start(name, {"child": {"job_type": "workflow", "target": leaf}, "after": after})
    for name in leaves:
        run = life.reaches(name, lambda run: bool(steps_of(run)["child"].child_run))
        child = life.runs[f"child of {name}"] = steps_of(run)["child"].child_run
        life.pids[name] = seen(life.daemon.wait_started(child, "only"))


def prepare_turns(life: Life) -> None:
    """Runs that wait for their turn, one that others take it from, and one that keeps what another made."""
    first = f"test $TOBAN_RUN_ID != $(head -n 1 $WITNESS) || {life.held('queue')}"
    life.start("queue", {"a": {"run": f"{note('$TOBAN_RUN_ID')}; {first}; {note('end')}"}}, overlap="queue")
    life.daemon.wait_started(life.runs["queue"], "a")
    for number in (2, 3):
        life.runs[f"queue {number}"] = life.daemon.start_run("queue")
    lasts = {
        "run": f"{note('begun')}; test -e $WITNESS.second || exec sleep 600",
        "kill_grace": "300ms",
    }
    life.start("replace", {"a": lasts}, overlap="replace")
    life.start(
        "kept",
        {
            "make": {
                "run": f"{note('make')}; echo made; seq 3 > file",
                "outputs": [{"name": "file", "path": "file"}],
            },
            "use": {
                "run": f"{note('use')}; test -e $WITNESS.again || exit 1; {life.held('kept')}; "
                "cat in; echo {{ steps.make.stdout }}",
                "inputs": [{"from": "make", "artifact": "file", "as": "in"}],
                "depends_on": ["make"],
            },
        },
    )
    assert run_state(life.ended("kept")) == "FAILED"
    (life.directory / "kept.witness.again").touch()
    wish = run_pb2.RetryRunRequest(id=life.runs["kept"])
    life.runs["kept again"] = life.daemon.runs.RetryRun(wish, timeout=20).run.id


def wait_until_all_wait(life: Life) -> None:
    life.daemon.wait_started(life.runs["kept again"], "use")
    life.reaches("back-off-over", lambda run: steps_of(run)["a"].retries == 1)
    wait_until(lambda: len(life.witness("letter")) == 2, "the retry does not begin")
    wait_until(lambda: "check 2" in life.witness("loop"), "the second check does not begin")
    wait_until(lambda: {"x", "y"} <= set(life.witness("each")), "the items do not begin")
    life.reaches("large", lambda run: step_states(run)["hold"] == "RUNNING")
    life.daemon.wait_started(life.runs["paused"], "a")
    life.daemon.runs.PauseRun(run_pb2.PauseRunRequest(id=life.runs["paused"]), timeout=20)
    life.reaches("approval", lambda run: step_states(run)["ask"] == "RUNNING")
    wait_until(lambda: life.witness("replace"), "it does not begin")
    life.pids["letter"] = seen(wait_until(lambda: second_pid(life, "letter"), "it has no process"))
    life.before = {name: life.now(name) for name in life.runs}


def second_pid(life: Life, name: str) -> int:
    attempts = [each for each in life.daemon.processes(life.runs[name]) if each.attempt == 2]
    return attempts[0].pid if attempts else 0


def kill_before_time_is_over(life: Life) -> None:
    """Kills the daemon while three more runs wait for times that are near.

    A busy machine may need more time for that. A daemon that is stopped notices nothing any more.
    """
    daemon = life.daemon
    again = f"{note('$TOBAN_ATTEMPT')}; test $TOBAN_ATTEMPT -ge 2"
    for life.patience in (1, 5, 25):
        delay, timeout = f"{4 * life.patience}s", f"{life.patience}s"
        names = {name: f"{name}-{life.patience}" for name in ("back-off", "interval", "nobody")}
        retry = {"delay": delay, "jitter": 0}
        life.start(names["back-off"], {"a": {"run": again, "max_retries": 3, "retry": retry}})
        check = {"run": "test {{ iteration }} = 2"}
        loop = {"run": note("{{ iteration }}"), "completion_check": check, "max_iterations": 5, "interval": delay}
        life.start(names["interval"], {"a": loop})
        wait_until(partial(tried, life, names["back-off"]), "it is not tried")
        wait_until(partial(checked, life, names["interval"]), "it is not checked")
        life.start(names["nobody"], {"ask": {**ASK, "timeout": timeout}, "after": AFTER})
        wait_until(partial(asked, life, names["nobody"]), "nobody is asked")
        found = {name: life.now(of) for name, of in names.items()}
        if "replace 2" not in life.runs:
            # The last things that it acknowledges: a run that takes the place of another, and a cancel.
            (life.directory / "replace.witness.second").touch()
            life.runs["replace 2"] = daemon.start_run("replace")
            daemon.cancel(life.runs["cancelled"], "enough")
        os.kill(daemon.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(daemon.pid) == "T", "the daemon is not stopped")
        due = min(steps_of(found[name])["a"].not_before.ToMicroseconds() for name in ("back-off", "interval"))
        begun = steps_of(found["nobody"])["ask"].started_at.ToMicroseconds()
        if time.time() * SECOND < min(due, begun + life.patience * SECOND):
            daemon.kill()
            life.before |= found
            for name, of in names.items():
                life.runs[name] = life.runs.pop(of)
            return
        os.kill(daemon.pid, signal.SIGCONT)
        for of in names.values():
            life.ended(of)
            del life.runs[of]
    raise AssertionError("the daemon cannot be killed in time")


def tried(life: Life, name: str) -> bool:
    """Whether its first attempt has failed, however long ago."""
    run = life.now(name)
    return backing_off(run) or steps_of(run)["a"].retries == 1


def checked(life: Life, name: str) -> bool:
    """Whether its first check has been made, however long ago."""
    step = steps_of(life.now(name))["a"]
    return waits_for(step) == "INTERVAL" or step.iteration == 2


def asked(life: Life, name: str) -> bool:
    return steps_of(life.now(name))["ask"].HasField("started_at")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    directory = tmp_path_factory.mktemp("d")
    names = (
        "letter",
        "loop",
        "x",
        "y",
        "z",
        "large",
        "paused",
        "held",
        "meanwhile",
        "queue",
        "kept",
    )
    gates = {name: Gate(f"{directory}/{name}.gate") for name in names}
    with running_daemon(directory / "s") as daemon:
        life = Life(daemon, directory)
        prepare_children(life)
        prepare_turns(life)
        prepare(life)
        wait_until_all_wait(life)
        kill_before_time_is_over(life)
        for name in ("meanwhile", "letter"):
            gates.pop(name).release_now()
            wait_until(lambda n=name: not alive(life.pids[n]), "it does not end")  # type: ignore[misc]
        asked = steps_of(life.before["nobody"])["ask"].started_at.ToMicroseconds()
        over = asked + (life.patience + 0.2) * SECOND
        wait_until(lambda: time.time() * SECOND > over, "time stands still")
        life.back_at = int(time.time() * SECOND)
        daemon.start()
        life.served_at = int(time.time() * SECOND)
        # At once: the daemon may not have looked at those that were there before.
        life.runs["queue 4"] = daemon.start_run("queue")
        for gate in gates.values():
            gate.release_now()
        yield life


def test_a_back_off_ends_once_and_when_it_was_to(life: Life) -> None:
    run = life.ended("back-off")
    assert (run_state(run), life.witness(run.workflow)) == ("SUCCEEDED", ["1", "2"])
    due = steps_of(life.before["back-off"])["a"].not_before.ToMicroseconds()
    second = life.daemon.processes(run.id)[1]
    assert due <= second.started_at.ToMicroseconds() < max(due, life.served_at) + LATE


def test_an_interval_ends_once_and_when_it_was_to(life: Life) -> None:
    run = life.ended("interval")
    assert (run_state(run), life.witness(run.workflow)) == ("SUCCEEDED", ["1", "2"])
    before = life.before["interval"]
    assert (waits_for(before), waits_for(steps_of(before)["a"])) == ("INTERVAL", "INTERVAL")
    due = steps_of(before)["a"].not_before.ToMicroseconds()
    second = next(each for each in life.daemon.processes(run.id) if (each.step, each.attempt) == ("a", 2))
    assert due <= second.started_at.ToMicroseconds() < max(due, life.served_at) + LATE


def test_a_back_off_that_was_over_meanwhile_ends_at_once(life: Life) -> None:
    run = life.ended("back-off-over")
    assert (run_state(run), life.witness("back-off-over")) == ("SUCCEEDED", ["1", "2"])
    assert [steps_of(run)["a"].attempts, steps_of(run)["a"].retries] == [2, 1]


def test_a_last_attempt_that_failed_meanwhile_leaves_one_dead_letter(life: Life) -> None:
    run = life.ended("letter")
    assert (run_state(run), life.witness("letter")) == ("FAILED", ["1", "2"])
    request = dead_letter_pb2.ListDeadLettersRequest()
    (letter,) = life.daemon.dead_letters.ListDeadLetters(request, timeout=20).dead_letters
    assert (letter.run_id, letter.step, letter.attempts) == (run.id, "a", 2)
    assert letter.process_execution_id == life.daemon.processes(run.id)[1].id


def test_a_loop_goes_on_with_the_check_that_was_under_way(life: Life) -> None:
    run = life.ended("loop")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert life.witness("loop") == [
        "run 1, ",
        "check 1",
        "run 2, said 1",
        "check 2",
        "run 3, said 2",
        "check 3",
    ]
    step = steps_of(run)["a"]
    assert (step.iteration, step.attempts, step.checks) == (3, 3, 3)


def test_no_item_is_run_twice_and_results_are_in_order(life: Life) -> None:
    run = life.ended("each")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert sorted(life.witness("each")) == ["w", "x", "y", "z"]
    assert life.daemon.log_of(run.id, "join")[OUT] == b'["w!","x!","y!","z!"] [0,0,0,0]\n'


def test_an_approval_still_waits_and_can_be_given(life: Life) -> None:
    assert step_states(life.now("approval"))["ask"] == "RUNNING"
    request = run_pb2.DecideApprovalRequest(
        run_id=life.runs["approval"], step="ask", decision=run_pb2.APPROVAL_DECISION_APPROVED, note="fine"
    )
    life.daemon.runs.DecideApproval(request, timeout=20)
    run = life.ended("approval")
    assert run_state(run) == "SUCCEEDED"
    assert life.daemon.log_of(run.id)[OUT] == b"fine\n"
    assert steps_of(run)["ask"].started_at == steps_of(life.before["approval"])["ask"].started_at


def test_an_approval_that_nobody_gave_in_time_has_failed(life: Life) -> None:
    run = life.ended("nobody")
    assert step_states(run) == {"ask": "FAILED", "after": "SKIPPED(aborted)"}
    asked = steps_of(run)["ask"]
    assert asked.reason == "timed out: no decision in time"
    took = asked.finished_at.ToMicroseconds() - asked.started_at.ToMicroseconds()
    assert took == life.patience * SECOND, "when its time was over, and not when somebody was there to see it"
    assert run.finished_at == asked.finished_at


def test_a_large_value_is_still_there(life: Life) -> None:
    run = life.ended("large")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert life.daemon.log_of(run.id, "use")[OUT] == b"100000\n"
    assert steps_of(run)["big"].result_bytes > 100_000


def test_a_paused_run_stays_so_until_it_is_resumed(life: Life) -> None:
    held = life.reaches("paused", lambda run: step_states(run)["a"] == "SUCCEEDED")
    assert (run_state(held), step_states(held)["b"]) == ("RUNNING", "READY")
    assert held.paused_at == life.before["paused"].paused_at
    assert life.witness("paused") == []
    life.daemon.runs.ResumeRun(run_pb2.ResumeRunRequest(id=held.id), timeout=20)
    assert run_state(life.ended("paused")) == "SUCCEEDED"
    assert life.witness("paused") == ["b"]


@pytest.mark.parametrize("name", ["held", "meanwhile"])
def test_a_child_tells_its_parent_though_both_were_killed_over(life: Life, name: str) -> None:
    run, child = life.ended(name), life.ended(f"child of {name}")
    assert (run_state(run), run_state(child)) == ("SUCCEEDED", "SUCCEEDED"), run.error_message
    assert (child.parent_run, child.parent_step) == (run.id, "child")
    assert life.witness(f"{name}-leaf") == ["begun"]
    assert life.witness(name) == ["after"]
    listed = run_pb2.ListRunsRequest(workflow=f"{name}-leaf")
    assert len(life.daemon.runs.ListRuns(listed, timeout=20).runs) == 1
    if name == "meanwhile":
        assert child.finished_at.ToMicroseconds() < life.back_at
        assert steps_of(run)["child"].finished_at == child.finished_at


@pytest.mark.parametrize("name", ["cancelled", "endless"])
def test_the_cancel_of_a_parent_reaches_its_child(life: Life, name: str) -> None:
    """One was acknowledged by the daemon that was killed, the other is by the next."""
    if name == "endless":
        life.daemon.cancel(life.runs[name], "enough")
    run, child = life.ended(name), life.ended(f"child of {name}")
    assert (run_state(run), run_state(child)) == ("CANCELLED", "CANCELLED")
    assert run.error_message == "cancelled: enough"
    assert step_states(run) == {"child": "CANCELLED", "after": "SKIPPED(cancelled)"}
    assert not alive(life.pids[name])


def test_runs_that_wait_for_their_turn_keep_their_order(life: Life) -> None:
    runs = [life.ended(name) for name in ("queue", "queue 2", "queue 3", "queue 4")]
    assert {run_state(run) for run in runs} == {"SUCCEEDED"}
    assert run_state(life.before["queue 2"]) == "PENDING"
    assert life.witness("queue") == [line for run in runs for line in (run.id, "end")]


def test_a_run_that_was_replaced_makes_room_for_the_other(life: Life) -> None:
    old, new = life.ended("replace"), life.ended("replace 2")
    assert (run_state(old), old.error_message) == (
        "CANCELLED",
        f"cancelled: replaced by run {new.workflow}#{new.number}",
    )
    assert run_state(new) == "SUCCEEDED"
    assert life.witness("replace") == ["begun", "begun"]
    assert new.started_at.ToMicroseconds() >= old.finished_at.ToMicroseconds()


def test_a_retry_keeps_its_files_when_the_run_they_are_from_goes(life: Life) -> None:
    first, run = life.runs["kept"], life.ended("kept again")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert life.witness("kept") == ["make", "use", "use"]
    assert life.daemon.log_of(run.id, "use")[OUT] == b"1\n2\n3\nmade\n"
    life.daemon.runs.DeleteRun(run_pb2.DeleteRunRequest(id=first), timeout=20)
    assert not (life.daemon.state_dir / "runs" / first).exists()
    life.daemon.kill()
    life.daemon.start()
    assert life.downloaded(run, "make", "file") == b"1\n2\n3\n"
    assert step_states(life.now("kept again")) == {"make": "SUCCEEDED", "use": "SUCCEEDED"}


def test_nothing_is_left_over(life: Life) -> None:
    """Every run has ended, once; a restart changes nothing about any of them."""
    ended = {name: life.ended(name) for name in life.runs if name != "kept"}
    life.daemon.stop()
    life.daemon.start()
    for name, run in ended.items():
        assert life.now(name) == run
    request = dead_letter_pb2.ListDeadLettersRequest()
    assert len(life.daemon.dead_letters.ListDeadLetters(request, timeout=20).dead_letters) == 1
