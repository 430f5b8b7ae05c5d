"""Locks across workflows: who gets them, who waits, and what keeps them held.

Each holder makes a directory that must not exist, and removes it at its end: two holders at once fail.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, steps_of, waits_for
from helpers.gate import Gate
from helpers.processes import alive, kill, seen, stat_of
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2, workflow_pb2


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    environment = {"TOBAN_LOCKS": "pair=2, alone=1"}
    with running_daemon(tmp_path_factory.mktemp("d") / "s", environment=environment) as running:
        yield running


def alone(directory: Path, until: str = "true") -> str:
    """A script that fails if another one is between its first and its last line."""
    return f"mkdir {directory}/held\n{until}\nrmdir {directory}/held"


def gated(directory: Path, name: str) -> str:
    return alone(directory, f"read _ < {directory}/{name}.gate")


def apply(daemon: Daemon, name: str, steps: dict[str, Any] | list[Any], **fields: Any) -> None:
    daemon.apply(json.dumps({"name": name, "description": "x", **fields, "steps": steps}))


def change(daemon: Daemon, name: str, steps: dict[str, Any] | list[Any], **fields: Any) -> None:
    source = json.dumps({"name": name, "description": "x", **fields, "steps": steps})
    changed = workflow_pb2.Workflow(name=name, definition=workflow_pb2.Definition(source=source))
    daemon.workflows.UpdateWorkflow(workflow_pb2.UpdateWorkflowRequest(workflow=changed), timeout=60)


def gate(directory: Path, name: str) -> Gate:
    return Gate(f"{directory}/{name}.gate")


def reaches_lock(daemon: Daemon, run_id: str, step: str = "") -> run_pb2.LockWait:
    """The lock that a run, or a step of it, comes to wait for."""

    def waiting() -> run_pb2.LockWait | None:
        run = daemon.get_run(run_id)
        found: run_pb2.Run | run_pb2.Step = steps_of(run)[step] if step else run
        return found.waiting_for_locks[0] if waits_for(found) == "LOCK" else None

    found = wait_until(waiting, "it does not come to wait for a lock")
    assert found is not None
    return found


def child_of(daemon: Daemon, parent: str) -> str:
    request = run_pb2.ListRunsRequest(parent_run=parent)
    found = wait_until(lambda: daemon.runs.ListRuns(request, timeout=60).runs, "the child is not created")
    return str(found[0].id)


def locks_of(daemon: Daemon) -> dict[str, system_pb2.Lock]:
    answer = daemon.system.ListLocks(system_pb2.ListLocksRequest(), timeout=60)
    return {lock.name: lock for lock in answer.locks}


def condition(daemon: Daemon) -> str:
    conditions = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=60).health.conditions
    return next((each.detail for each in conditions if each.name == "locks"), "")


def test_a_run_waits_while_a_run_of_another_workflow_holds_its_lock(daemon: Daemon, tmp_path: Path) -> None:
    go = gate(tmp_path, "first")
    apply(daemon, "lock-first", {"only": {"run": gated(tmp_path, "first")}}, locks=["db1"])
    apply(daemon, "lock-second", {"only": {"run": alone(tmp_path)}}, locks=["db1"], timeout="60s")
    first = daemon.start_run("lock-first")
    daemon.wait_started(first, "only")
    second = daemon.start_run("lock-second")
    wait = reaches_lock(daemon, second)
    assert (wait.lock, [user.run_id for user in wait.held_by]) == ("db1", [first])
    assert run_state(daemon.get_run(second)) == "PENDING"
    listed = daemon.runs.ListRuns(run_pb2.ListRunsRequest(workflow="lock-second"), timeout=60).runs[0]
    assert waits_for(listed) == "LOCK"
    lock = locks_of(daemon)["db1"]
    assert lock.size == 1
    assert [(user.workflow, user.run_number) for user in lock.holders] == [("lock-first", 1)]
    assert [(user.workflow, user.run_number) for user in lock.waiting] == [("lock-second", 1)]
    go.release_now()
    assert [run_state(daemon.wait_run(run)) for run in (first, second)] == ["SUCCEEDED", "SUCCEEDED"]
    wait_until(lambda: "db1" not in locks_of(daemon), "the lock is not freed")


def test_a_lock_of_size_two_has_two_holders(daemon: Daemon, tmp_path: Path) -> None:
    names = ["one", "two", "three"]
    gates = [gate(tmp_path, name) for name in names]
    for name in names:
        apply(daemon, f"pair-{name}", {"only": {"run": f"read _ < {tmp_path}/{name}.gate", "locks": ["pair"]}})
    first, second = daemon.start_run("pair-one"), daemon.start_run("pair-two")
    for run in (first, second):
        daemon.wait_started(run, "only")
    third = daemon.start_run("pair-three")
    wait = reaches_lock(daemon, third, "only")
    assert {(user.run_id, user.step) for user in wait.held_by} == {(first, "only"), (second, "only")}
    held_up = daemon.get_run(third)
    assert (waits_for(held_up), list(held_up.waiting_steps)) == ("LOCK", ["only"])
    gates[0].release_now()
    daemon.wait_started(third, "only")
    for each in gates[1:]:
        each.release_now()
    assert {run_state(daemon.wait_run(run)) for run in (first, second, third)} == {"SUCCEEDED"}
    assert locks_of(daemon)["pair"].size == 2


def test_steps_and_instances_exclude_each_other(daemon: Daemon, tmp_path: Path) -> None:
    """With outputs and a completion check: the lock is held between iterations too."""
    for item in ("a", "b"):
        (tmp_path / item).mkdir()
    loop = {
        "run": f"test {{{{ iteration }}}} -ge 2 || mkdir {tmp_path}/held; echo x > out",
        "workspace": f"{tmp_path}/{{{{ item }}}}",
        "locks": ["db2"],
        "for_each": ["a", "b"],
        "outputs": [{"name": "out", "path": "out"}],
        "completion_check": {"run": f"test {{{{ iteration }}}} -ge 2 && rmdir {tmp_path}/held"},
        "max_iterations": 3,
    }
    other = {"run": alone(tmp_path), "locks": ["db2"], "for_each": list(range(8))}
    apply(daemon, "lock-steps", {"loop": loop, "other": other})
    run = daemon.run("lock-steps")
    assert run_state(run) == "SUCCEEDED", run.error_message


def test_a_child_enters_the_lock_of_its_parent(daemon: Daemon, tmp_path: Path) -> None:
    apply(daemon, "lock-child", {"only": {"run": alone(tmp_path)}}, locks=["db3"])
    call = {"job_type": "workflow", "target": "lock-child"}
    apply(daemon, "lock-parent", {"child": call, "own": {"run": "true", "locks": ["db3"]}}, locks=["db3"])
    apply(daemon, "lock-caller", {"child": {**call, "locks": ["db3"]}})
    for name in ("lock-parent", "lock-caller"):
        run = daemon.run(name)
        assert run_state(run) == "SUCCEEDED", run.error_message


def test_an_older_run_in_the_queue_does_not_keep_a_child_from_its_lock(daemon: Daemon, tmp_path: Path) -> None:
    """The older run waits for the lock of the parent, and the parent for its child behind that run."""
    go = gate(tmp_path, "parent")
    apply(daemon, "queued-child", {"only": {"run": alone(tmp_path)}}, locks=["db4"], overlap="queue")
    steps = [
        {"name": "wait", "run": f"read _ < {tmp_path}/parent.gate"},
        {"name": "call", "job_type": "workflow", "target": "queued-child"},
    ]
    apply(daemon, "queued-parent", steps, locks=["db4"])
    parent = daemon.start_run("queued-parent")
    daemon.wait_started(parent, "wait")
    older = daemon.start_run("queued-child")
    reaches_lock(daemon, older)
    go.release_now()
    assert [run_state(daemon.wait_run(run)) for run in (parent, older)] == ["SUCCEEDED", "SUCCEEDED"]


def test_what_could_deadlock_is_refused_with_what_to_write(daemon: Daemon) -> None:
    bad = {"only": {"run": "true", "locks": ["a"]}}
    found = refused(lambda: apply(daemon, "bad-order", bad, locks=["b"]))
    assert 'add "a" to the locks of the workflow' in str(found)
    apply(daemon, "takes-inside", {"only": {"run": "true", "locks": ["a"]}})
    call = {"call": {"job_type": "workflow", "target": "takes-inside"}}
    found = refused(lambda: apply(daemon, "calls-under-later", call, locks=["b"]))
    assert 'add "a" to the locks of workflow "takes-inside"' in str(found)
    found = refused(lambda: apply(daemon, "calls-under-same", call, locks=["a"]))
    assert 'add "a" to the locks of workflow "takes-inside"' in str(found)


def test_a_definition_that_changes_later_fails_the_step_instead(daemon: Daemon) -> None:
    apply(daemon, "changes-later", {"only": {"run": "true"}})
    apply(daemon, "calls-later", {"call": {"job_type": "workflow", "target": "changes-later"}}, locks=["m"])
    change(daemon, "changes-later", {"only": {"run": "true", "locks": ["c"]}})
    run = daemon.run("calls-later")
    assert run_state(run) == "FAILED"
    assert 'add "c" to the locks of workflow "changes-later"' in run.error_message


def test_definitions_that_change_while_a_child_waits_do_not_deadlock(daemon: Daemon, tmp_path: Path) -> None:
    """A newer version of the child takes the lock of the parent in a step, while the child waits for its turn."""
    first_go, go = gate(tmp_path, "first"), gate(tmp_path, "call")
    apply(daemon, "turned", {"only": {"run": f"read _ < {tmp_path}/first.gate"}}, overlap="queue", max_active_runs=1)
    steps = [
        {"name": "wait", "run": f"read _ < {tmp_path}/call.gate"},
        {"name": "call", "job_type": "workflow", "target": "turned"},
        {"name": "after", "run": "true"},
    ]
    apply(daemon, "turning", steps, locks=["turn"])
    first = daemon.start_run("turned")
    daemon.wait_started(first, "only")
    parent = daemon.start_run("turning")
    daemon.wait_started(parent, "wait")
    go.release_now()
    child = child_of(daemon, parent)
    change(daemon, "turning", [{"name": "nothing", "run": "true"}], locks=["turn"])
    change(daemon, "turned", {"only": {"run": "true", "locks": ["turn"]}}, overlap="queue", priority=9)
    second = daemon.start_run("turned")
    first_go.release_now()
    ended = daemon.wait_run(parent)
    assert run_state(ended) == "FAILED"
    assert "deadlock: this run, turned#" in ended.error_message
    assert "wait for each other, because a definition was changed" in ended.error_message
    assert run_state(daemon.wait_run(child)) == "CANCELLED"
    assert step_states(ended)["call"] == "FAILED"
    assert [run_state(daemon.wait_run(run)) for run in (first, second)] == ["SUCCEEDED", "SUCCEEDED"]


def test_cancel_and_timeouts_end_those_who_wait(daemon: Daemon, tmp_path: Path) -> None:
    go = gate(tmp_path, "holder")
    apply(daemon, "holds-long", {"only": {"run": gated(tmp_path, "holder")}}, locks=["db5"])
    apply(daemon, "waits-run", {"only": {"run": alone(tmp_path)}}, locks=["db5"])
    apply(daemon, "waits-step", {"only": {"run": alone(tmp_path), "locks": ["db5"]}}, max_active_runs=2)
    apply(daemon, "waits-timed", {"only": {"run": alone(tmp_path), "locks": ["db5"]}}, timeout="1s")
    holder = daemon.start_run("holds-long")
    daemon.wait_started(holder, "only")
    run, step, timed = (daemon.start_run(name) for name in ("waits-run", "waits-step", "waits-timed"))
    reaches_lock(daemon, run)
    reaches_lock(daemon, step, "only")
    daemon.cancel(run)
    daemon.cancel(step)
    ended = [daemon.wait_run(each) for each in (run, step, timed)]
    assert [run_state(each) for each in ended] == ["CANCELLED", "CANCELLED", "TIMED_OUT"]
    assert [step_states(each)["only"] for each in ended[1:]] == ["SKIPPED(cancelled)", "SKIPPED(timed_out)"]
    assert not locks_of(daemon)["db5"].waiting
    go.release_now()
    assert run_state(daemon.wait_run(holder)) == "SUCCEEDED"
    assert run_state(daemon.run("waits-run")) == "SUCCEEDED"


def test_a_killed_daemon_forgets_neither_holders_nor_waiters(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        gates = {name: gate(tmp_path, name) for name in ("run", "step")}
        apply(daemon, "holds", {"only": {"run": gated(tmp_path, "run")}}, locks=["db"])
        apply(daemon, "waits", {"only": {"run": alone(tmp_path)}}, locks=["db"])
        apply(daemon, "step-waits", {"only": {"run": alone(tmp_path), "locks": ["db"]}})
        other = tmp_path / "other"
        other.mkdir()
        body = f"mkdir {other}/held; read _ < {tmp_path}/step.gate; rmdir {other}/held"
        apply(daemon, "step-holds", {"only": {"run": body, "locks": ["gpu"]}})
        apply(daemon, "gpu-waits", {"only": {"run": f"mkdir {other}/held; rmdir {other}/held", "locks": ["gpu"]}})
        runs: dict[str, str] = {}
        for name in ("holds", "step-holds"):
            runs[name] = daemon.start_run(name)
            daemon.wait_started(runs[name], "only")
        for name, step in (("waits", ""), ("step-waits", "only"), ("gpu-waits", "only")):
            runs[name] = daemon.start_run(name)
            reaches_lock(daemon, runs[name], step)
        for _ in range(2):
            daemon.kill()
            daemon.start()
            for name, step in (("waits", ""), ("step-waits", "only"), ("gpu-waits", "only")):
                reaches_lock(daemon, runs[name], step)
            held = {name: [user.run_id for user in lock.holders] for name, lock in locks_of(daemon).items()}
            assert held == {"db": [runs["holds"]], "gpu": [runs["step-holds"]]}
        for each in gates.values():
            each.release_now()
        ended = [daemon.wait_run(run) for run in runs.values()]
        assert [run_state(run) for run in ended] == ["SUCCEEDED"] * 5, [run.error_message for run in ended]


def test_a_run_that_cannot_be_loaded_keeps_its_locks_until_its_processes_are_gone(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        go = gate(tmp_path, "child")
        apply(daemon, "called", {"only": {"run": f"read _ < {tmp_path}/child.gate", "locks": ["gpu"]}})
        apply(daemon, "calls", {"call": {"job_type": "workflow", "target": "called", "locks": ["db"]}})
        apply(daemon, "wants-db", {"only": {"run": "true"}}, locks=["db"])
        apply(daemon, "wants-gpu", {"only": {"run": "true", "locks": ["gpu"]}})
        parent = daemon.start_run("calls")
        child = child_of(daemon, parent)
        daemon.wait_started(child, "only")
        daemon.kill()
        write_outputs(daemon, child, "{")
        daemon.start()
        waiting = daemon.start_run("wants-db"), daemon.start_run("wants-gpu")
        assert reaches_lock(daemon, waiting[0]).lock == "db"
        assert reaches_lock(daemon, waiting[1], "only").lock == "gpu"
        assert {each.run_id for lock in locks_of(daemon).values() for each in lock.leftovers} == {child}
        assert "run called#1 cannot be loaded" in wait_until(lambda: condition(daemon), "nobody is told")
        go.release_now()
        assert {run_state(daemon.wait_run(run)) for run in waiting} == {"SUCCEEDED"}
        wait_until(lambda: not condition(daemon), "the condition stays")
        daemon.kill()
        write_outputs(daemon, child, "{}")
        daemon.start()
        assert [run_state(daemon.wait_run(run)) for run in (child, parent)] == ["SUCCEEDED", "SUCCEEDED"]


def write_outputs(daemon: Daemon, run_id: str, text: str) -> None:
    with closing(sqlite3.connect(daemon.state_dir / "toban.db")) as database, database:
        database.execute("UPDATE step_runs SET outputs = ? WHERE run_id = ?", (text, run_id))


def test_a_lock_stays_held_while_processes_of_a_lost_step_may_live(tmp_path: Path) -> None:
    """Shim, spawner and daemon are killed at once, and there is no cgroup."""
    environment = {"TOBAN_CGROUP": "off", "TOBAN_BOOT_ID": "before"}
    with running_daemon(tmp_path / "s", environment=environment) as daemon:
        apply(daemon, "lost", {"only": {"run": "exec sleep 600", "locks": ["gpu"]}}, locks=["db"])
        apply(daemon, "next", {"only": {"run": "true", "locks": ["gpu"]}})
        apply(daemon, "whole", {"only": {"run": "true"}}, locks=["db"])
        lost = daemon.start_run("lost")
        step = seen(daemon.wait_started(lost, "only"))
        stat = stat_of(step.pid)
        assert stat is not None
        shim, spawners = seen(stat.parent), [seen(pid) for pid in daemon.children()]
        daemon.kill()
        for process in (*spawners, shim):
            kill(process)
            wait_until(lambda process=process: not alive(process), "it does not die")  # type: ignore[misc]
        daemon.start()
        assert run_state(daemon.wait_run(lost)) == "FAILED"
        waiting = daemon.start_run("next"), daemon.start_run("whole")
        for _ in range(2):
            assert reaches_lock(daemon, waiting[0], "only").lock == "gpu"
            assert reaches_lock(daemon, waiting[1]).lock == "db"
            found = locks_of(daemon)
            assert [(each.run_id, each.step) for each in found["gpu"].leftovers] == [(lost, "only")]
            assert [each.run_id for each in found["db"].leftovers] == [lost]
            assert "toban locks release db" in wait_until(lambda: condition(daemon), "nobody is told")
            daemon.kill()
            daemon.start()
        kill(step)
        release = system_pb2.ReleaseLockRequest(name="db")
        (released,) = daemon.system.ReleaseLock(release, timeout=60).released
        assert released.run_id == lost
        assert run_state(daemon.wait_run(waiting[1])) == "SUCCEEDED"
        reaches_lock(daemon, waiting[0], "only")
        daemon.kill()
        daemon.environment["TOBAN_BOOT_ID"] = "after"
        daemon.start()
        assert run_state(daemon.wait_run(waiting[0])) == "SUCCEEDED", "after a boot its processes are gone"
        assert not locks_of(daemon)
