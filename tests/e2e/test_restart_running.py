"""The daemon is killed with -9 while steps run. Started again, it knows everything: exit codes, logs, pids, causes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from helpers.daemon import (
    Daemon,
    cause_name,
    error_class,
    process_state,
    run_state,
    running_daemon,
    step_states,
    steps_of,
    texts,
)
from helpers.gate import Gate
from helpers.processes import Process, alive, gone, kill, seen, stat_of, state_of
from helpers.wait import wait_until
from toban.v1 import run_pb2, system_pb2

OUT = run_pb2.LOG_STREAM_STDOUT


def definition(name: str, steps: str, fields: str = "") -> str:
    return f"name: {name}\ndescription: x\n{fields}\nsteps:\n{steps}\n"


@dataclass
class Life:
    """The state before the daemon was killed."""

    daemon: Daemon
    runs: dict[str, str] = field(default_factory=dict)
    pids: dict[str, Process] = field(default_factory=dict)
    chunks: list[run_pb2.StreamLogsResponse] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)
    info: system_pb2.GetInfoResponse | None = None
    limit: int = 0
    """Seconds that the runs had whose time was over while nobody was there."""

    def start(self, name: str, steps: str, fields: str = "") -> str:
        self.daemon.apply(definition(name, steps, fields))
        self.runs[name] = self.daemon.start_run(name)
        return self.runs[name]

    def ended(self, name: str) -> run_pb2.Run:
        return self.daemon.wait_run(self.runs[name])

    def started(self, name: str, step: str) -> Process:
        found = seen(self.daemon.wait_started(self.runs[name], step))
        self.pids[f"{name}.{step}"] = found
        return found

    def recovered(self) -> system_pb2.Recovery:
        """What the last start found, once it has looked at everything."""

        def done() -> system_pb2.GetInfoResponse | None:
            info = self.daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
            return info if info.recovery.HasField("finished_at") else None

        info = wait_until(done, "recovery does not end")
        assert info is not None
        return info.recovery


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


@pytest.fixture(scope="module")
def life(directory: Path) -> Iterator[Life]:
    """Steps in every situation, then the kill, then events without a daemon, then the new start."""
    gates = {name: Gate(f"{directory}/{name}") for name in ("good", "bad", "a", "b", "c", "meanwhile")}
    held = "echo {0} one; echo {0} err >&2; read _ < {1}; echo {0} two; exit {2}"

    def step(name: str, code: int = 0) -> str:
        return held.format(name, gates[name].path, code)

    with running_daemon(directory / "s") as daemon:
        life = Life(daemon)
        life.start("good", f'  - {{name: held, run: "{step("good")}"}}\n  - {{name: next, run: echo next}}')
        life.start("bad", f'  - {{name: held, run: "{step("bad", 42)}"}}\n  - {{name: never, run: "true"}}')
        branches = "".join(f'  {name}: {{run: "{step(name)}"}}\n' for name in "abc")
        life.start("wide", f"{branches}  join: {{run: echo join, depends_on: [a, b, c]}}")
        life.start("meanwhile", f'  - {{name: held, run: "{step("meanwhile", 5)}"}}')
        for name, of in (
            ("good", ["held"]),
            ("bad", ["held"]),
            ("wide", list("abc")),
            ("meanwhile", ["held"]),
        ):
            for each in of:
                life.started(name, each)
        slow = kill_before_time_is_over(life)
        gates["meanwhile"].release_now()
        for process in (*slow, life.pids["meanwhile.held"]):
            wait_until(partial(gone, process), "its supervisor does not work", 90)
        daemon.start()
        life.info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
        life.recovered()
        for name in ("good", "bad", "a", "b", "c"):
            gates[name].release_now()
        yield life


def kill_before_time_is_over(life: Life) -> list[Process]:
    """Kills the daemon while three more runs go on whose time is short; their processes.

    A busy machine may need more time for that. A daemon that is stopped notices nothing any more.
    """
    daemon = life.daemon
    for life.limit in (2, 10, 50):
        names = [f"{name}-{life.limit}" for name in ("step-timeout", "run-timeout", "idle-timeout")]
        limit = f"timeout: {life.limit}s"
        silent = "  - {{name: slow, run: echo begun; sleep 600, {}{}, kill_grace: 1s}}"
        life.start(names[0], silent.format("", limit))
        life.start(names[1], "  - {name: slow, run: sleep 600}\n  - {name: never, run: 'true'}", limit)
        life.start(names[2], silent.format("idle_", limit))
        with suppress(AssertionError):  # it may be over already
            for name in names:
                life.started(name, "slow")
        life.chunks = daemon.chunks(life.runs["wide"])
        life.sequences = {name: watched(daemon, run) for name, run in life.runs.items()}
        slow = [life.pids.pop(f"{name}.slow", None) for name in names]
        os.kill(daemon.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(daemon.pid) == "T", "the daemon is not stopped")
        going = [process for process in slow if process is not None and alive(process)]
        if len(going) == len(names):
            daemon.kill()
            assert all(alive(process) for process in life.pids.values())
            for name, process in zip(names, going, strict=True):
                short = name.removesuffix(f"-{life.limit}")
                life.runs[short] = life.runs.pop(name)
                life.sequences[short] = life.sequences.pop(name)
                life.pids[f"{short}.slow"] = process
            return going
        os.kill(daemon.pid, signal.SIGCONT)
        for name in names:
            life.ended(name)
            del life.runs[name]
    raise AssertionError("the daemon cannot be killed in time")


def watched(daemon: Daemon, run_id: str) -> int:
    stream = daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=60)
    return next(iter(stream)).sequence


def test_recovery_says_what_it_found(life: Life) -> None:
    found = life.recovered()
    assert (found.runs, found.reattached, found.finished_meanwhile) == (7, 5, 4)
    assert (found.relaunched, found.lost) == (0, 0)


def test_a_step_that_slept_through_it_succeeds_with_its_whole_log(life: Life) -> None:
    run = life.ended("good")
    assert (run_state(run), run.error_message) == ("SUCCEEDED", "")
    assert step_states(run) == {"held": "SUCCEEDED", "next": "SUCCEEDED"}
    assert texts(life.daemon.chunks(run.id)) == {
        ("held", OUT): b"good one\ngood two\n",
        ("held", run_pb2.LOG_STREAM_STDERR): b"good err\n",
        ("next", OUT): b"next\n",
    }
    assert life.daemon.chunks(run.id)[-1].end.complete


def test_a_real_exit_code_is_known(life: Life) -> None:
    run = life.ended("bad")
    assert (run_state(run), run.error_message) == ("FAILED", "step held failed: exit code 42")
    assert steps_of(run)["held"].exit_code == 42
    assert step_states(run)["never"] == "SKIPPED(aborted)"
    process = life.daemon.process_of(run.id, "held")
    assert (process_state(process), process.exit_code) == ("FAILED", 42)
    assert cause_name(process.ending) == "exited"


def test_parallel_steps_are_all_taken_up_and_keep_their_pids(life: Life) -> None:
    run = life.ended("wide")
    assert set(step_states(run).values()) == {"SUCCEEDED"}
    for name in "abc":
        process = life.daemon.process_of(run.id, name)
        assert process.pid == life.pids[f"wide.{name}"].pid
        assert process.attempt == 1
        assert process.stdout_log_bytes == len(f"{name} one\n{name} two\n")
    assert len(life.daemon.processes(run.id)) == 4


def test_a_step_that_ended_while_the_daemon_was_down_is_taken_as_it_ended(life: Life) -> None:
    run = life.ended("meanwhile")
    assert (run_state(run), run.steps[0].exit_code) == ("FAILED", 5)
    assert life.daemon.log_of(run.id)[OUT] == b"meanwhile one\nmeanwhile two\n"
    assert life.info is not None
    came_back = life.info.started_at.ToMicroseconds()
    assert run.steps[0].finished_at.ToMicroseconds() < came_back
    # However long nobody was there: the run was over when its last step was.
    assert run.finished_at == run.steps[0].finished_at


@pytest.mark.parametrize("cause", ["timeout", "idle_timeout"])
def test_the_timeouts_of_a_step_hold_while_the_daemon_is_down(life: Life, cause: str) -> None:
    run = life.ended("step-timeout" if cause == "timeout" else "idle-timeout")
    reason = "timed out" if cause == "timeout" else f"no output for {life.limit}s"
    assert (run_state(run), run.error_message) == ("FAILED", f"step slow failed: {reason}")
    process = life.daemon.process_of(run.id, "slow")
    assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", cause)
    assert process.ending.proved_empty
    assert error_class(process) == "RETRYABLE_TRANSIENT"
    assert life.daemon.log_of(run.id)[OUT] == b"begun\n"
    assert life.info is not None
    assert process.finished_at.ToMicroseconds() < life.info.started_at.ToMicroseconds()


def test_the_timeout_of_a_run_holds_while_the_daemon_is_down(life: Life) -> None:
    run = life.ended("run-timeout")
    assert (run_state(run), cause_name(run.ending)) == ("TIMED_OUT", "timed_out")
    assert step_states(run) == {"slow": "CANCELLED", "never": "SKIPPED(timed_out)"}
    process = life.daemon.process_of(run.id, "slow")
    assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", "run_timeout")
    assert life.info is not None
    assert process.finished_at.ToMicroseconds() < life.info.started_at.ToMicroseconds()
    assert run.finished_at.ToMicroseconds() < life.info.started_at.ToMicroseconds()
    took = run.finished_at.ToMicroseconds() - run.started_at.ToMicroseconds()
    assert life.limit * 1_000_000 <= took < (life.limit + 28) * 1_000_000
    ended = run.ending.at.ToMicroseconds() - run.started_at.ToMicroseconds()
    assert life.limit * 1_000_000 <= ended <= took


def test_positions_of_the_killed_daemon_go_on_exactly_there(life: Life) -> None:
    run_id = life.ended("wide").id
    whole = texts(life.daemon.chunks(run_id))
    assert len(life.chunks) > 1
    for number, message in enumerate(life.chunks):
        rest = texts(life.daemon.chunks(run_id, message.position, follow=True))
        before = texts(life.chunks[: number + 1])
        together = {key: before.get(key, b"") + rest.get(key, b"") for key in before.keys() | rest.keys()}
        assert together == whole


def test_sequence_numbers_of_the_killed_daemon_go_on_exactly_there(life: Life) -> None:
    for name, run_id in life.runs.items():
        run = life.ended(name)
        after = life.sequences[name]
        request = run_pb2.WatchRunRequest(id=run_id, after_sequence=after)
        rest = list(life.daemon.runs.WatchRun(request, timeout=60))
        assert [m.sequence for m in rest] == list(range(after + 1, after + 1 + len(rest)))
        assert rest[-1].run.state == run.state


def test_nothing_runs_when_all_has_ended(life: Life) -> None:
    for name in life.runs:
        life.ended(name)
    info = life.daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert (info.active_runs, info.running_processes) == (0, 0)
    assert not any(alive(process) for process in life.pids.values())


# -- killed at the worst moment


DEAF = """\
  - name: deaf
    kill_grace: 300ms
    run: |
      trap '' TERM
      echo $$ >> {0}
      sh -c 'echo $$ >> {0}; while :; do sleep 1; done'
"""


def test_kills_right_after_the_answer(life: Life, directory: Path) -> None:
    """A cancel and three starts are acknowledged, and the daemon is gone. In the third life all of it is done."""
    daemon = life.daemon
    pids, witness, go = directory / "pids", directory / "witness", directory / "go"
    life.start("cancelled", DEAF.format(pids))
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "it does not start")
    tree = [seen(int(pid)) for pid in pids.read_text().split()]
    life.start("lost", "  - {name: long, run: exec sleep 601}\n  - {name: never, run: 'true'}")
    orphan = life.started("lost", "long")
    asked = daemon.cancel(life.runs["cancelled"], "enough")
    assert asked.HasField("cancel_requested_at")
    daemon.apply(
        definition(
            "acknowledged",
            f"  - {{name: a, run: 'until [ -e {go} ]; do sleep 0.01; done; echo $TOBAN_RUN_ID >> {witness}'}}",
            "overlap: allow",
        )
    )
    begun = [daemon.start_run("acknowledged") for _ in range(3)]
    stat = stat_of(orphan.pid)
    assert stat is not None
    guardians = [seen(pid) for pid in (*daemon.children(), stat.parent)]
    daemon.kill()
    # One step loses everybody who could know of it: the spawner, and its own supervisor.
    for guardian in guardians:
        kill(guardian)
        wait_until(lambda g=guardian: not alive(g), "it does not die")  # type: ignore[misc]
    try:
        daemon.start()
        go.touch()
        for run_id in begun:
            run = daemon.wait_run(run_id)
            assert run_state(run) == "SUCCEEDED"
        assert sorted(witness.read_text().split()) == sorted(begun), "each exactly once"
        cancelled = life.ended("cancelled")
        assert (run_state(cancelled), cancelled.error_message) == ("CANCELLED", "cancelled: enough")
        assert cancelled.cancel_requested_at == asked.cancel_requested_at
        assert not any(alive(process) for process in tree)
        process = daemon.process_of(cancelled.id, "deaf")
        assert (process_state(process), cause_name(process.ending)) == ("CANCELLED", "cancel")
        assert process.ending.proved_empty
        lost = life.ended("lost")
        assert run_state(lost) == "FAILED"
        assert step_states(lost) == {"long": "FAILED", "never": "SKIPPED(aborted)"}
        process = daemon.process_of(lost.id, "long")
        assert (process_state(process), cause_name(process.ending)) == ("LOST", "lost")
        assert process.ending.orphans == run_pb2.ORPHANS_UNKNOWN, "it cannot be known, and is not claimed"
        assert error_class(process) == "NON_RETRYABLE"
        assert not daemon.chunks(lost.id)[-1].end.complete
        assert life.recovered().lost == 1
        assert life.recovered().runs >= 4
    finally:
        kill(orphan)
