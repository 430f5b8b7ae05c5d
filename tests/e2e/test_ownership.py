"""Two daemons and one database: the second is refused, or takes it over, and nothing is executed twice."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.daemon import STOP_WITHIN, Daemon, run_state, steps_of
from helpers.gate import Gate
from helpers.postgres import DATABASES, postgres_schema
from helpers.processes import kill, users_of
from helpers.wait import wait_until
from toban.v1 import run_pb2
from toband.store.sql.database import database

DEFINITION = """
name: {name}
description: writes down that it ran
steps:
  first:
    on_lost: rerun
    run: |
      echo first >> {witness}
      {then}
  after:
    depends_on: [first]
    run: echo after >> {witness}
"""


class Scene:
    """Daemons on one database, each with a state directory of its own."""

    def __init__(self, directory: Path, database: str) -> None:
        self.directory = directory
        self.witness = directory / "witness"
        self.database = database
        self.daemons: list[Daemon] = []

    def daemon(self, name: str, *arguments: str, **environment: str) -> Daemon:
        made = Daemon(
            self.directory / name,
            "--database",
            self.database,
            *arguments,
            environment=environment,
        )
        self.daemons.append(made)
        return made

    def lines(self) -> list[str]:
        return self.witness.read_text().split() if self.witness.exists() else []

    def apply(self, daemon: Daemon, name: str, then: str = "true") -> None:
        daemon.apply(DEFINITION.format(name=name, witness=self.witness, then=then))


@pytest.fixture(params=DATABASES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            address = f"sqlite:///{tmp_path}/db/toban.db"
        else:
            address = stack.enter_context(postgres_schema())
        made = Scene(tmp_path, address)
        try:
            yield made
        finally:
            # Only the last one owns the database, and can end what it started in order.
            started = [daemon for daemon in made.daemons if daemon.process is not None]
            for daemon in started[:-1]:
                daemon.kill()
                for left in users_of(daemon.state_dir):
                    kill(left)
            for daemon in started[-1:]:
                daemon.clear()


def as_if_of_another_host(url: str) -> None:
    """A boot that this machine is not in would prove here that a process is gone; on another host it proves nothing."""
    target = database(url)
    with target.writer.connect() as connection:
        connection.exec_driver_sql("UPDATE process_executions SET boot_id = 'other'")
    target.close()


def refused(daemon: Daemon) -> str:
    """The one line of a start that fails."""
    done = subprocess.run(
        [sys.executable, "-m", "toband", "--state-dir", str(daemon.state_dir), *daemon.arguments],
        env={**os.environ, "TOBAN_LOG_LEVEL": "error"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_a_second_daemon_is_refused_and_says_who_owns_the_database(scene: Scene) -> None:
    first = scene.daemon("a")
    first.start()
    line = refused(scene.daemon("b"))
    assert line.startswith("toband: cannot use the database: another toband owns it (")
    for part in (
        f"host {socket.gethostname()}",
        f"pid {first.pid}",
        "since 20",
        str(first.state_dir),
    ):
        assert part in line
    assert "--take-over" in line
    scene.apply(first, "works")
    assert run_state(first.run("works")) == "SUCCEEDED"


def test_a_daemon_that_was_stopped_replaced_and_resumed_does_nothing_more(scene: Scene) -> None:
    gate = Gate(f"{scene.directory}/gate")
    first = scene.daemon("a", TOBAN_MAX_ATTEMPTS_RUNNING="1")
    first.start()
    scene.apply(first, "runs", f"read _ < {gate.path}")
    scene.apply(first, "waits")
    running = first.start_run("runs")
    first.wait_started(running, "first")
    waiting = first.start_run("waits")
    wait_until(lambda: len(first.processes(waiting)) == 1, "no attempt waits for its turn")
    os.kill(first.pid, signal.SIGSTOP)
    as_if_of_another_host(scene.database)

    second = scene.daemon("b", "--take-over")
    second.start()
    for run_id in (running, waiting):
        run = second.wait_run(run_id)
        step = steps_of(run)["first"]
        assert (run_state(run), step.state) == ("FAILED", run_pb2.STEP_STATE_FAILED)
        assert "launched by another toband" in second.processes(run_id)[0].error_message
    # What the first one left running ends by itself, and would let the next attempt begin.
    gate.release_now()
    os.kill(first.pid, signal.SIGCONT)
    assert first.process is not None
    assert first.process.wait(STOP_WITHIN) == 3
    log = first.log.read_text()
    assert '"action": "replaced"' in log
    by = f"(host {socket.gethostname()}, pid {second.pid}, since "
    assert f"toband: cannot write to the database: another toband took it over {by}" in log
    assert scene.lines() == ["first"]

    assert run_state(second.run("waits")) == "SUCCEEDED"
    assert scene.lines() == ["first", "first", "after"]
    assert refused(first).startswith("toband: cannot use the database: another toband owns it (")


def test_an_idle_daemon_that_was_replaced_leaves_too(scene: Scene) -> None:
    first = scene.daemon("a")
    first.start()
    second = scene.daemon("b", "--take-over")
    second.start()
    assert first.process is not None
    assert first.process.wait(STOP_WITHIN) == 3


def test_after_a_crash_the_same_state_directory_needs_no_flag(scene: Scene) -> None:
    gate = Gate(f"{scene.directory}/gate")
    first = scene.daemon("a")
    first.start()
    scene.apply(first, "runs", f"read _ < {gate.path}")
    run_id = first.start_run("runs")
    first.wait_started(run_id, "first")
    first.kill()
    first.start()
    gate.release_now()
    assert run_state(first.wait_run(run_id)) == "SUCCEEDED"
    assert scene.lines() == ["first", "after"]


def test_a_copy_of_the_state_directory_is_another_installation(scene: Scene) -> None:
    """Its lock is free, and the id of the original is in it."""
    first = scene.daemon("a")
    first.start()
    shutil.copytree(first.state_dir, scene.directory / "b", ignore=shutil.ignore_patterns("*.sock*"))
    assert f"pid {first.pid}" in refused(scene.daemon("b"))
    first.kill()
    assert "another toband owns it" in refused(scene.daemon("b"))


def test_a_database_moves_after_a_clean_stop(scene: Scene) -> None:
    first = scene.daemon("a")
    first.start()
    scene.apply(first, "works")
    assert run_state(first.run("works")) == "SUCCEEDED"
    assert first.stop() == 0
    second = scene.daemon("b")
    second.start()
    run = second.run("works")
    assert (run_state(run), run.number) == ("SUCCEEDED", 2)
    assert "another toband owns it" in refused(first)


def test_a_database_does_not_move_while_steps_run(scene: Scene) -> None:
    gate = Gate(f"{scene.directory}/gate")
    first = scene.daemon("a")
    first.start()
    scene.apply(first, "runs", f"read _ < {gate.path}")
    run_id = first.start_run("runs")
    first.wait_started(run_id, "first")
    assert first.stop() == 0
    line = refused(scene.daemon("b"))
    assert "was stopped while 1 of its steps went on running; start that one again" in line
    gate.release_now()
    first.start()
    assert run_state(first.wait_run(run_id)) == "SUCCEEDED"
    assert scene.lines() == ["first", "after"]
