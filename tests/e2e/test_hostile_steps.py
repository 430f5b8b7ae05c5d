"""Steps that do everything wrong, through the whole stack: all of them end, and their records are true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from helpers import steps
from helpers.daemon import Daemon, cause_name, error_class, process_state, run_state, running_daemon
from helpers.gate import Gate
from helpers.processes import Process, alive, gone, marked, seen, stat_of, state_of
from helpers.wait import wait_until
from toban.v1 import run_pb2

OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running


def apply(daemon: Daemon, name: str, argv: list[str] | str, **fields: object) -> None:
    """A workflow of one step: shell text, or a program with its arguments."""
    step: dict[str, object] = {"name": "only", **fields}
    if isinstance(argv, str):
        step["run"] = argv
    else:
        step |= {"job_type": "exec", "target": argv[0], "args": argv[1:]}
    daemon.apply(json.dumps({"name": name, "description": "hostile", "steps": [step]}))


def ended(daemon: Daemon, name: str) -> tuple[run_pb2.Run, run_pb2.ProcessExecution]:
    run = daemon.run(name)
    return run, daemon.process_of(run.id, "only")


@pytest.fixture
def bystander() -> Iterator[Process]:
    """Somebody else's process with the very arguments of the one that must go."""
    process = subprocess.Popen(steps.lurker_argv("97531"))
    try:
        yield seen(process.pid)
    finally:
        process.kill()
        process.wait()


def hiding(daemon: Daemon, place: Path, marker: str) -> tuple[dict[str, str], Process]:
    """Runs of a lurker and a hopper that were seen to hide before their time was over, and the lurker.

    A busy machine may need more time for that.
    """
    for timeout in ("2s", "10s", "50s"):
        pid_file, ready = place / f"lurker-{timeout}", place / f"hopping-{timeout}"
        lurker = steps.python(steps.DAEMONISING, str(pid_file), *steps.lurker_argv("97531"))
        hopper = steps.python(steps.HOPPING, str(ready), "50", marker)
        how = {"timeout": timeout, "kill_grace": "300ms"}
        apply(daemon, f"lurker-{timeout}", lurker, **how)
        apply(daemon, f"hopper-{timeout}", hopper, **how)
        ids = {name: daemon.start_run(f"{name}-{timeout}") for name in ("lurker", "hopper")}
        for run_id, file in zip(ids.values(), (pid_file, ready), strict=True):
            wait_until(partial(came_or_ended, daemon, run_id, file), "it does not end", 90)
        if pid_file.exists() and ready.exists():
            pid = int(pid_file.read_text())
            found = stat_of(pid)
            if found is not None and found.state != "Z" and marked(marker):
                return ids, Process(pid, found.start)
        for run_id in ids.values():
            daemon.wait_run(run_id)
    raise AssertionError("they do not hide within a minute")


def came_or_ended(daemon: Daemon, run_id: str, file: Path) -> bool:
    return file.exists() or daemon.get_run(run_id).HasField("finished_at")


def test_what_hides_is_gone_after_timeout_and_grace_and_a_bystander_is_not(
    daemon: Daemon, tmp_path: Path, bystander: Process
) -> None:
    """A daemonised grandchild without session, descriptors, environment and ears; and one that hops from pid to pid."""
    marker = f"hostile-{tmp_path.name}-{id(daemon)}"
    ids, hidden = hiding(daemon, tmp_path, marker)
    for name, run_id in ids.items():
        run = daemon.wait_run(run_id, 120)
        process = daemon.process_of(run_id, "only")
        assert run_state(run) == "FAILED", name
        assert run.error_message == "step only failed: timed out"
        assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", "timeout")
        assert list(process.ending.signals) == ["TERM", "KILL"]
        assert process.ending.proved_empty
        assert process.ending.survivors == 0
        assert process.ending.took.ToMicroseconds() >= 300_000
    assert gone(hidden)
    assert marked(marker) == []
    assert alive(bystander)


def test_background_children_are_ended_and_counted_and_not_waited_for(daemon: Daemon, tmp_path: Path) -> None:
    """They hold the pipes open, and one of them is deaf; the main process's exit is the result."""
    pids = tmp_path / "pids"
    script = f"""
sh -c 'echo $$ >> {pids}; exec sleep 600' &
sh -c 'trap "" TERM; echo $$ >> {pids}; while :; do sleep 1; done' &
while test "$(cat {pids} 2>/dev/null | wc -l)" -lt 2; do sleep 0.01; done
echo done
exit 3
"""
    apply(daemon, "background", script, kill_grace="200ms", success_codes=[3])
    run, process = ended(daemon, "background")
    assert (run_state(run), process.exit_code) == ("SUCCEEDED", 3)
    assert (process_state(process), cause_name(process.ending)) == ("COMPLETED", "exited")
    assert process.ending.leftovers >= 2
    assert list(process.ending.signals) == ["TERM", "KILL"]
    assert process.ending.proved_empty
    for pid in pids.read_text().split():
        with pytest.raises(AssertionError):
            seen(int(pid))
    assert daemon.log_of(run.id) == {OUT: b"done\n"}


def test_twenty_megabytes_come_back_to_the_byte(daemon: Daemon) -> None:
    script = "import sys\nfor n in range(2_000_000): sys.stdout.write(f'{n:09}\\n')"
    apply(daemon, "loud", [sys.executable, "-I", "-S", "-c", script])
    run_id = daemon.start_run("loud")
    printed = daemon.log_of(run_id, follow=True)[OUT]
    assert len(printed) == 20_000_000
    assert printed == b"".join(b"%09d\n" % n for n in range(2_000_000))
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    assert daemon.process_of(run_id, "only").stdout_log_bytes == 20_000_000


def test_bytes_that_are_no_text_come_back_exactly(daemon: Daemon) -> None:
    seed, writes = "any", 60
    expected = steps.printed_by(seed, writes)
    apply(daemon, "bytes", steps.python(steps.PRINTING, seed, str(writes)))
    run, process = ended(daemon, "bytes")
    assert run_state(run) == "SUCCEEDED"
    assert daemon.log_of(run.id) == {OUT: expected[0], ERR: expected[1]}
    assert (process.stdout_log_bytes, process.stderr_log_bytes) == tuple(map(len, expected))


def test_a_step_that_closes_its_output_is_waited_for(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "closed", f"echo last words; exec >&- 2>&-; read _ < {gate.path}; exit 9")
    run_id = daemon.start_run("closed")
    daemon.wait_started(run_id, "only")
    assert run_state(daemon.get_run(run_id)) == "RUNNING"
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.steps[0].exit_code) == ("FAILED", 9)
    assert daemon.log_of(run_id) == {OUT: b"last words\n"}


def test_a_step_that_prints_nothing_and_one_that_stops_itself(daemon: Daemon) -> None:
    apply(daemon, "silent", "exit 0")
    run, process = ended(daemon, "silent")
    assert (run_state(run), process.stdout_log_bytes, process.stderr_log_bytes) == ("SUCCEEDED", 0, 0)
    assert daemon.log_of(run.id) == {}
    process = stopped(daemon)
    assert (process_state(process), process.signal) == ("TIMED_OUT", 9)


def stopped(daemon: Daemon) -> run_pb2.ProcessExecution:
    """One that was seen to have stopped itself before its time was over: a busy machine may need more time for that."""
    for timeout in ("200ms", "2s", "20s"):
        name = f"stopped-{timeout}"
        apply(daemon, name, "kill -STOP $$; exit 0", timeout=timeout, kill_grace="100ms")
        run_id = daemon.start_run(name)
        pid = daemon.wait_started(run_id, "only")
        wait_until(lambda pid=pid: state_of(pid) in ("T", "Z", ""), "it goes on")  # type: ignore[misc]
        in_time = state_of(pid) == "T"
        daemon.wait_run(run_id)
        if in_time:
            return daemon.process_of(run_id, "only")
    raise AssertionError("it does not stop itself")


def test_a_step_that_kills_its_supervisor_is_lost_and_leaves_nothing(daemon: Daemon, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {pids}; echo before; kill -9 $PPID; sleep 600"
    apply(daemon, "patricide", script)
    run, process = ended(daemon, "patricide")
    assert run_state(run) == "FAILED"
    assert (process_state(process), cause_name(process.ending)) == ("LOST", "lost")
    assert process.ending.orphans == run_pb2.ORPHANS_ENDED
    assert error_class(process) == "NON_RETRYABLE"
    for pid in pids.read_text().split():
        with pytest.raises(AssertionError):
            seen(int(pid))
    assert not daemon.chunks(run.id)[-1].end.complete
    apply(daemon, "after-patricide", "echo fine")
    assert run_state(daemon.run("after-patricide")) == "SUCCEEDED"


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "PIPE", "ABRT"])
def test_a_signal_to_its_supervisor_changes_nothing(daemon: Daemon, tmp_path: Path, name: str) -> None:
    witness = tmp_path / "witness"
    script = f"echo x >> {witness}; kill -{name} $PPID; echo after; exit 3"
    apply(daemon, f"signals-{name.lower()}", script)
    run, process = ended(daemon, f"signals-{name.lower()}")

    assert (process_state(process), process.exit_code) == ("FAILED", 3)
    assert daemon.log_of(run.id) == {OUT: b"after\n"}
    assert witness.read_text() == "x\n"


def test_a_step_that_stops_its_supervisor_is_timed_out_and_can_be_cancelled(daemon: Daemon, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    script = f"kill -STOP $PPID; echo $$ >> {witness}; exec sleep 600"
    apply(daemon, "stops-late", script, timeout="3s", kill_grace="200ms")
    apply(daemon, "stops-cancelled", script, kill_grace="200ms")
    late, cancelled = daemon.start_run("stops-late"), daemon.start_run("stops-cancelled")
    wait_until(lambda: witness.exists() and len(witness.read_text().split()) == 2, "they do not begin")
    steps_seen = [seen(int(pid)) for pid in witness.read_text().split()]
    daemon.cancel(cancelled)
    assert run_state(daemon.wait_run(cancelled)) == "CANCELLED"
    assert run_state(daemon.wait_run(late)) == "FAILED"
    assert process_state(daemon.process_of(late, "only")) == "TIMED_OUT"
    assert not any(alive(each) for each in steps_seen)
    assert len(witness.read_text().split()) == 2


@pytest.mark.parametrize(
    ("name", "target", "fields", "reason"),
    [
        ("missing", "no-such-program", {}, "cannot start no-such-program: No such file"),
        ("absent", "/nowhere/program", {}, "cannot start /nowhere/program: No such file"),
        ("data", "/etc/passwd", {}, "cannot start /etc/passwd: Permission denied"),
        ("directory", "/etc", {}, "cannot start /etc: Permission denied"),
        ("homeless", "true", {"workspace": "/nowhere/at/all"}, "cannot enter the workspace"),
        ("in-a-file", "true", {"workspace": "/etc/passwd"}, "cannot enter the workspace"),
    ],
)
def test_what_cannot_be_started_says_why(
    daemon: Daemon, name: str, target: str, fields: dict[str, str], reason: str
) -> None:
    apply(daemon, f"start-{name}", [target], **fields)
    run, process = ended(daemon, f"start-{name}")
    assert run_state(run) == "FAILED"
    assert reason in process.error_message
    assert reason in run.error_message
    assert (process_state(process), error_class(process)) == ("FAILED", "NON_RETRYABLE")
    assert error_class(run.steps[0]) == "NON_RETRYABLE"
    assert process.pid == 0
    assert not process.HasField("exit_code")
    assert process.signal == 0


def test_a_program_that_is_no_program_cannot_start(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"\x00\x01\x02")
    file.chmod(0o755)
    apply(daemon, "garbage", [str(file)])
    run, process = ended(daemon, "garbage")
    assert (run_state(run), error_class(process)) == ("FAILED", "NON_RETRYABLE")
    assert "Exec format error" in process.error_message


def test_resources_of_the_whole_tree_are_counted(daemon: Daemon) -> None:
    script = """
import os
if os.fork() == 0:
    held = bytearray(os.urandom(1)) * 80_000_000
    sum(range(3_000_000))
    os._exit(0)
os.wait()
"""
    apply(daemon, "busy", [sys.executable, "-I", "-S", "-c", script])
    _, process = ended(daemon, "busy")
    assert process.resources.user_time.ToMicroseconds() > 10_000
    assert process.resources.max_rss_bytes > 80_000_000
