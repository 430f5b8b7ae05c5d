"""A step's supervisor is killed: the step is lost, its processes are ended, and `on_lost` decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import (
    Daemon,
    cause_name,
    process_state,
    run_state,
    running_daemon,
    step_states,
)
from helpers.processes import Process, alive, kill, seen, stat_of
from helpers.wait import wait_until
from toban.v1 import run_pb2


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running


def lasting(daemon: Daemon, name: str, tokens: Path, on_lost: str) -> str:
    """A step that lasts in its first `lives` lives, and ends by itself in the last one."""
    daemon.apply(f"""
name: {name}
description: x
params: {{lives: {{type: integer, default: 1}}}}
steps:
  - name: only
    on_lost: {on_lost}
    env: {{LIVES: "{{{{ params.lives }}}}"}}
    run: |
      echo "::progress $TOBAN_ATTEMPT/9 tries"
      echo "$TOBAN_ATTEMPT $TOBAN_ATTEMPT_TOKEN" >> {tokens}
      if [ "$TOBAN_ATTEMPT" -le "$LIVES" ]; then exec sleep 600; fi
  - {{name: next, run: echo next}}
""")
    return name


def supervisor(daemon: Daemon, run_id: str, number: int, tokens: Path) -> tuple[Process, Process]:
    """The shim of the step's attempt of that number, and the step, once it runs and has said so."""

    def pid() -> int:
        return next((p.pid for p in daemon.processes(run_id) if p.step == "only" and p.attempt == number), 0)

    step = seen(wait_until(pid, f"attempt {number} does not start"))
    wait_until(lambda: has_said(tokens, number), f"attempt {number} does not get going")
    stat = stat_of(step.pid)
    assert stat is not None
    return seen(stat.parent), step


def has_said(tokens: Path, number: int) -> bool:
    lines = tokens.read_text().splitlines() if tokens.exists() else []
    return any(line.startswith(f"{number} ") for line in lines)


def end(*processes: Process) -> None:
    """Kills them, and waits until they are gone: none of them sees the next daemon."""
    for process in processes:
        kill(process)
    for process in processes:
        wait_until(lambda process=process: not alive(process), "it does not die")  # type: ignore[misc]


def test_a_lost_step_fails_by_default(daemon: Daemon, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    run_id = daemon.start_run(lasting(daemon, "fails", tokens, "fail"))
    shim, step = supervisor(daemon, run_id, 1, tokens)
    wait_until(lambda: daemon.get_run(run_id).steps[0].progress_current == 1, "its progress is not logged")
    kill(shim)
    run = daemon.wait_run(run_id)
    assert (run_state(run), step_states(run)) == (
        "FAILED",
        {"only": "FAILED", "next": "SKIPPED(aborted)"},
    )
    for reporter in (run, run.steps[0]):
        assert (reporter.progress_total, reporter.progress_message) == (9, "tries")
    assert "lost" in run.error_message
    process = daemon.process_of(run_id, "only")
    assert (process_state(process), cause_name(process.ending)) == ("LOST", "lost")
    assert process.ending.orphans == run_pb2.ORPHANS_ENDED
    assert not alive(step)


def test_a_step_that_may_be_repeated_is(daemon: Daemon, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    run_id = daemon.start_run(lasting(daemon, "again", tokens, "rerun"), lives=2)
    steps = []
    for number in (1, 2):
        shim, step = supervisor(daemon, run_id, number, tokens)
        steps.append(step)
        kill(shim)
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.error_message) == ("SUCCEEDED", "")
    assert step_states(run) == {"only": "SUCCEEDED", "next": "SUCCEEDED"}
    assert run.failed_steps == 0
    assert not any(alive(step) for step in steps)
    attempts = [p for p in daemon.processes(run_id) if p.step == "only"]
    assert [process_state(p) for p in attempts] == ["LOST", "LOST", "COMPLETED"]
    written = [line.split() for line in tokens.read_text().splitlines()]
    assert [number for number, _ in written] == ["1", "2", "3"]
    assert len({token for _, token in written}) == 3


def test_a_step_is_not_lost_without_end(daemon: Daemon, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    run_id = daemon.start_run(lasting(daemon, "enough", tokens, "rerun"), lives=9)
    for number in (1, 2, 3, 4):
        shim, _ = supervisor(daemon, run_id, number, tokens)
        kill(shim)
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.steps[0].attempts) == ("FAILED", 4)


def test_a_rerun_that_was_decided_survives_the_daemon(tmp_path: Path) -> None:
    """The loss is committed, and the daemon dies before the next attempt is: it is launched in the next life."""
    with running_daemon(tmp_path / "s") as daemon:
        daemon.stop()
        daemon.start({"TOBAN_FAILPOINTS": "retry.timer=kill"})
        tokens = tmp_path / "tokens"
        run_id = daemon.start_run(lasting(daemon, "again", tokens, "rerun"))
        shim, step = supervisor(daemon, run_id, 1, tokens)
        kill(shim)
        assert daemon.wait() < 0
        daemon.start()
        run = daemon.wait_run(run_id)
        assert run_state(run) == "SUCCEEDED"
        assert run.steps[0].attempts == 2
        assert not alive(step)


def test_nothing_is_repeated_while_its_first_life_may_go_on(tmp_path: Path) -> None:
    """Shim, spawner and daemon are killed at once, and there is no cgroup: the remaining processes are unknown."""
    with running_daemon(tmp_path / "s", environment={"TOBAN_CGROUP": "off"}) as daemon:
        tokens = tmp_path / "tokens"
        run_id = daemon.start_run(lasting(daemon, "careful", tokens, "rerun"))
        shim, step = supervisor(daemon, run_id, 1, tokens)
        spawners = [seen(pid) for pid in daemon.children()]
        daemon.kill()
        end(*spawners, shim)
        daemon.start()
        run = daemon.wait_run(run_id)
        assert run_state(run) == "FAILED"
        assert "may still run" in run.error_message
        assert daemon.process_of(run_id, "only").ending.orphans == run_pb2.ORPHANS_UNKNOWN
        assert len(tokens.read_text().splitlines()) == 1
        assert alive(step)
        kill(step)


def test_after_a_reboot_it_is_lost_and_repeated(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s", environment={"TOBAN_BOOT_ID": "before"}) as daemon:
        tokens = tmp_path / "tokens"
        run_id = daemon.start_run(lasting(daemon, "again", tokens, "rerun"))
        shim, step = supervisor(daemon, run_id, 1, tokens)
        spawners = [seen(pid) for pid in daemon.children()]
        daemon.kill()
        end(*spawners, shim, step)
        daemon.environment["TOBAN_BOOT_ID"] = "after"
        daemon.start()
        run = daemon.wait_run(run_id)
        assert run_state(run) == "SUCCEEDED"
        first = daemon.processes(run_id)[0]
        assert process_state(first) == "LOST"
        assert "the machine went down" in first.error_message
        lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
        (found,) = [e for e in lines if e.get("action") == "recovered" and e["runs"]]
        assert (found["lost"], found["reattached"]) == (1, 0)
