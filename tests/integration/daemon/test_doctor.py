"""The doctor of a real daemon: finds planted damage, repairs what is safe, and leaves active runs alone."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.daemon import Daemon, process_state, run_state, running_daemon
from helpers.processes import children_of, gone, kill, seen, stat_of
from helpers.wait import wait_until
from toban.v1 import system_pb2

OK = system_pb2.FINDING_STATUS_OK
WARNING = system_pb2.FINDING_STATUS_WARNING
FAILED = system_pb2.FINDING_STATUS_FAILED
REPAIRED = system_pb2.FINDING_STATUS_REPAIRED
TWO_HOURS = 7200.0
# Whether the machine that runs the tests has a time service is not the daemon's doing.
OF_THE_MACHINE = {"clock", "space", "inodes", "step user"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        running.apply("name: quick\ndescription: x\nsteps: [{name: only, run: echo done}]\n")
        running.apply("name: long\ndescription: x\nsteps: [{name: only, run: sleep 600}]\n")
        yield running


@pytest.fixture(scope="module")
def active(daemon: Daemon) -> str:
    """A run that is never touched."""
    run_id = daemon.start_run("long")
    daemon.wait_started(run_id, "only")
    return run_id


@pytest.fixture
def ended(daemon: Daemon) -> str:
    return daemon.run("quick").id


def examine(daemon: Daemon, repair: bool = False) -> dict[str, list[system_pb2.Finding]]:
    found: dict[str, list[system_pb2.Finding]] = {}
    request = system_pb2.DoctorRequest(repair=repair)
    for finding in daemon.system.Doctor(request, timeout=60).findings:
        found.setdefault(finding.check, []).append(finding)
    return found


def only(found: dict[str, list[system_pb2.Finding]], check: str) -> tuple[int, str]:
    (finding,) = found[check]
    return finding.status, finding.detail


def make_old(path: Path) -> None:
    at = time.time() - TWO_HOURS
    os.utime(path, (at, at))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_is_well(daemon: Daemon, active: str, ended: str) -> None:
    wait_until(lambda: only(examine(daemon), "ballast")[0] == OK, "no space was set aside")
    found = examine(daemon)
    bad = [
        finding
        for findings in found.values()
        for finding in findings
        if finding.status != OK and finding.check not in OF_THE_MACHINE
    ]
    assert bad == []
    expected = {
        "database",
        "schema",
        "database writes",
        "audit",
        "attempts",
        "run directories",
        "supervisors",
        "logs",
        "temporary files",
        "permissions",
        "clock",
        "space",
        "ballast",
        "state directory",
        "stray processes",
        "spawner",
        "descriptors",
        "cgroup",
        "step user",
        "sandbox",
    }
    assert expected <= set(found)
    (spawner,) = daemon.children()
    assert only(found, "spawner") == (OK, f"pid {spawner}")


def test_directories_of_no_run_are_told_when_they_are_old(daemon: Daemon, active: str) -> None:
    runs = daemon.state_dir / "runs"
    old, young = runs / "01a00000-dead", runs / "01a00000-young"
    for path in (old, young):
        (path / "attempts").mkdir(parents=True)
    make_old(old)
    status, detail = only(examine(daemon), "run directories")
    assert (status, "01a00000-dead" in detail) == (WARNING, True)
    assert "young" not in detail, "it may be about to be used"
    # A repair leaves them: with the wrong database configured, all of them would seem to belong to nobody.
    assert only(examine(daemon, repair=True), "run directories")[0] == WARNING
    assert old.exists()
    assert (runs / active).exists()
    for path in (old, young):
        shutil.rmtree(path)
    assert only(examine(daemon), "run directories")[0] == OK


def test_half_made_files_go_when_they_are_old(daemon: Daemon, active: str, ended: str) -> None:
    runs = daemon.state_dir / "runs"
    half_made = [
        daemon.state_dir / "toband.json.new",
        runs / ended / "params.json.new",
        runs / ended / "attempts" / ".only.1.abcdef01.log.4711",
    ]
    kept = [
        runs / ended / "attempts" / ".only.1.abcdef02.log.4712",
        runs / active / "attempts" / ".only.1.abcdef01.log.4711",
    ]
    for path in (*half_made, *kept):
        path.write_text("half")
        if path != kept[0]:
            make_old(path)
    status, detail = only(examine(daemon), "temporary files")
    assert (status, detail.startswith("3 unfinished files: ")) == (WARNING, True)
    status, detail = only(examine(daemon, repair=True), "temporary files")
    assert (status, detail) == (REPAIRED, "removed 3 unfinished files")
    assert not any(path.exists() for path in half_made)
    assert all(path.exists() for path in kept), "one is young, one is of an active run"
    for path in kept:
        path.unlink()
    assert (runs / ended / "params.json").exists()


def test_what_is_open_to_others_is_closed(daemon: Daemon, ended: str) -> None:
    state = daemon.state_dir
    opened = [
        state,
        state / "runs",
        state / "toban.db",
        state / "toban.sock",
        state / "runs" / ended,
    ]
    before = [mode(path) for path in opened]
    for path in opened:
        path.chmod(0o777)
    found = examine(daemon)["permissions"]
    assert {finding.status for finding in found} == {FAILED}
    assert found[0].detail == f"{state} has mode 0777, others can get at it"
    assert found[-1].detail == "and 2 more"
    status, detail = only(examine(daemon, repair=True), "permissions")
    assert (status, str(state) in detail) == (REPAIRED, True)
    assert mode(state) & 0o026 == 0
    assert mode(state / "runs") & 0o066 == 0
    assert mode(state / "toban.db") & 0o077 == 0
    assert mode(state / "toban.sock") == 0o600
    assert mode(state / "runs" / ended) & 0o006 == 0
    for path, bits in zip(opened, before, strict=True):
        path.chmod(bits)
    assert only(examine(daemon), "permissions")[0] == OK


@pytest.mark.parametrize("made", [None, 0o755, 0o2777])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_the_daemon_makes_is_as_the_doctor_wants_it(tmp_path: Path, made: int | None, umask: int) -> None:
    state = tmp_path / "s"
    if made is not None:
        state.mkdir()
        state.chmod(made)
    before = os.umask(umask)
    try:
        with running_daemon(state) as running:
            running.apply("name: quick\ndescription: x\nsteps: [{name: only, run: echo done}]\n")
            running.run("quick")
            assert only(examine(running), "permissions")[0] == OK
            assert mode(state) & 0o027 == 0
            assert [path.name for path in state.iterdir() if mode(path) & 0o002] == []
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_told(daemon: Daemon, ended: str) -> None:
    path = daemon.state_dir / "runs" / ended
    os.chown(path, 65534, -1)
    try:
        (finding,) = examine(daemon, repair=True)["permissions"]
        assert (finding.status, "belongs to user 65534" in finding.detail) == (FAILED, True)
        assert "chown" in finding.hint
    finally:
        os.chown(path, 0, -1)


def test_a_log_that_somebody_removed(daemon: Daemon, ended: str) -> None:
    (log,) = (daemon.state_dir / "runs" / ended / "attempts").glob("*.log")
    kept = log.read_bytes()
    log.unlink()
    status, detail = only(examine(daemon), "logs")
    assert (status, log.name in detail) == (WARNING, True)
    log.write_bytes(kept)
    log.rename(log.with_name(f"{log.name}.gz"))
    assert only(examine(daemon), "logs")[0] == OK, "a compressed one is there"
    log.with_name(f"{log.name}.gz").rename(log)


def test_a_supervisor_that_outlives_its_run(daemon: Daemon, ended: str) -> None:
    (log,) = (daemon.state_dir / "runs" / ended / "attempts").glob("*.log")
    hold = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", hold, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            status, detail = only(examine(daemon, repair=True), "supervisors")
            assert (status, f"quick#{daemon.get_run(ended).number}" in detail) == (FAILED, True)
        finally:
            holder.kill()
    assert only(examine(daemon), "supervisors")[0] == OK


@contextmanager
def step_process(daemon: Daemon, run_id: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """As a step of that run would be, if its supervisor had been killed."""
    output = daemon.state_dir / "runs" / run_id / "attempts" / "only.1.00000000.out"
    own = {"TOBAN_ATTEMPT_TOKEN": "0" * 32, "TOBAN_RUN_ID": run_id, "TOBAN_OUTPUT": str(output)}
    with subprocess.Popen(command, env={**os.environ, **own}, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_stray_processes_are_ended_and_no_others(daemon: Daemon, active: str, ended: str) -> None:
    running = seen(daemon.process_of(active, "only").pid)
    stubborn = ("sh", "-c", "trap : TERM; echo; while :; do sleep 600; done")
    with (
        step_process(daemon, ended, "sleep", "600") as plain,
        step_process(daemon, "01a00000-removed", *stubborn) as deaf,
    ):
        wait_until(lambda: children_of(deaf.pid), "it has not begun")
        status, detail = only(examine(daemon), "stray processes")
        assert status == FAILED
        assert str(plain.pid) in detail
        assert plain.poll() is None, "to look is not to touch"
        status, detail = only(examine(daemon, repair=True), "stray processes")
        assert (status, detail.startswith("ended ")) == (REPAIRED, True)
        assert plain.wait(20) == -15
        assert deaf.wait(20) == -9
        assert only(examine(daemon), "stray processes") == (OK, "none")
    assert not gone(running), "the step of an active run goes on"


def test_a_process_that_somebody_else_started_is_left_alone(daemon: Daemon, ended: str) -> None:
    output = daemon.state_dir / "runs" / ended / "attempts" / "only.1.00000000.out"
    own = f"TOBAN_ATTEMPT_TOKEN=0 TOBAN_OUTPUT='{output}'"
    script = f"env {own} sleep 600 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        try:
            wait_until(lambda: "sleep" in Path(f"/proc/{child}/comm").read_text(), "it has not begun")
            (finding,) = examine(daemon, repair=True)["stray processes"]
            assert finding.status == WARNING
            assert str(child) in finding.detail
            assert "left alone" in finding.hint
            assert not gone(seen(child))
        finally:
            os.kill(child, 9)


def test_what_a_killed_supervisor_left_is_ended(tmp_path: Path) -> None:
    """Daemon, spawner and shim are killed at once: nothing is left that could end the step."""
    with running_daemon(tmp_path / "s", environment={"TOBAN_CGROUP": "off"}) as daemon:
        daemon.apply("name: long\ndescription: x\nsteps: [{name: only, run: exec sleep 600}]\n")
        run_id = daemon.start_run("long")
        step = seen(daemon.wait_started(run_id, "only"))
        found = stat_of(step.pid)
        assert found is not None
        shim, (spawner,) = seen(found.parent), map(seen, daemon.children())
        for process in (seen(daemon.pid), spawner, shim):
            kill(process, signal.SIGSTOP)
        daemon.kill()
        for process in (spawner, shim):
            kill(process)
            wait_until(lambda process=process: gone(process), "it lives")  # type: ignore[misc]
        assert not gone(step)
        daemon.start()
        assert run_state(daemon.wait_run(run_id)) == "FAILED"
        assert process_state(daemon.process_of(run_id, "only")) == "LOST"
        status, detail = only(examine(daemon, repair=True), "stray processes")
        assert (status, str(step.pid) in detail) == (REPAIRED, True)
        assert gone(step)


def test_the_active_run_was_not_touched(daemon: Daemon, active: str) -> None:
    assert run_state(daemon.get_run(active)) == "RUNNING"
    daemon.cancel(active)
    assert run_state(daemon.wait_run(active)) == "CANCELLED"
