"""Backup and restore: what was acknowledged is there again, and nothing of it runs twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from helpers.command import Said, Toban
from helpers.daemon import CALL_WITHIN, Daemon, run_state
from helpers.postgres import DATABASES, postgres_schema
from helpers.processes import kill, users_of
from helpers.wait import wait_until
from toban.v1 import run_pb2, secret_pb2, secret_pb2_grpc, system_pb2

WORKFLOWS = """
name: load
overlap: allow
steps:
  write:
    workspace: "{{{{ run.dir }}}}"
    run: |
      echo "write $TOBAN_RUN_ID" >> {witness}
      echo "output of $TOBAN_RUN_ID"
      printf 'artifact of %s' "$TOBAN_RUN_ID" > report.txt
    outputs: [{{name: report, path: report.txt}}]
  after:
    depends_on: [write]
    run: echo "after $TOBAN_RUN_ID" >> {witness}
---
name: queued
overlap: queue
steps:
  wait:
    on_lost: rerun
    run: |
      echo "wait $TOBAN_RUN_ID" >> {witness}
      exec sleep 600
  next:
    depends_on: [wait]
    run: echo "next $TOBAN_RUN_ID" >> {witness}
---
name: every-second
schedule: [{{every: 1s}}]
steps:
  tick:
    run: echo "tick $TOBAN_RUN_ID" >> {witness}
---
name: listener
on: things.happened
steps:
  hear:
    run: echo "hear $TOBAN_RUN_ID" >> {witness}
"""
BEFORE = 12
"""Runs of the load that have ended before the backup begins."""


class Scene:
    def __init__(self, directory: Path, databases: ExitStack, kind: str) -> None:
        self.directory = directory
        self.witness = directory / "witness"
        self.witness.touch()
        self.kind = kind
        self._databases = databases
        self.daemons: list[Daemon] = []
        self.original = self.daemon("original", *self.database())

    def database(self) -> Sequence[str]:
        """The arguments for another empty database."""
        if self.kind == "sqlite":
            return ()
        return ("--database", self._databases.enter_context(postgres_schema()))

    def daemon(self, name: str, *arguments: str) -> Daemon:
        made = Daemon(self.directory / name, *arguments)
        self.daemons.append(made)
        return made

    def apply(self) -> None:
        for text in WORKFLOWS.format(witness=self.witness).split("\n---\n"):
            self.original.apply(text)

    def backup(self, *options: str) -> Path:
        path = self.directory / "backup.tar.gz"
        Toban(self.original)("backup", str(path), *options)
        return path

    def lines(self) -> list[str]:
        return self.witness.read_text().splitlines()


def toban(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toban.cli", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def kill_all(daemon: Daemon) -> None:
    """The daemon, its spawner, its shims and their steps, as a power cut does."""
    daemon.kill()
    while users := users_of(daemon.state_dir):
        for each in users:
            kill(each)


@pytest.fixture(params=DATABASES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as databases:
        made = Scene(tmp_path, databases, request.param)
        try:
            yield made
        finally:
            for daemon in made.daemons:
                daemon.clear()


class Load:
    """Starts runs without a break; `acknowledged` has their ids."""

    def __init__(self, daemon: Daemon) -> None:
        self.acknowledged: list[str] = []
        self._daemon = daemon
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.acknowledged.append(self._daemon.start_run("load"))
            except grpc.RpcError:
                return  # it was killed
            self._stopped.wait(0.02)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def ended(daemon: Daemon, run_ids: Sequence[str]) -> list[str]:
    return [each for each in run_ids if daemon.get_run(each).state == run_pb2.RUN_STATE_SUCCEEDED]


def info_of(daemon: Daemon) -> system_pb2.GetInfoResponse:
    return daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=CALL_WITHIN)


def artifact_of(daemon: Daemon, run_id: str) -> bytes:
    request = run_pb2.DownloadArtifactRequest(run_id=run_id, step="write", name="report")
    return b"".join(message.data for message in daemon.runs.DownloadArtifact(request, timeout=CALL_WITHIN))


def test_a_backup_under_load_has_everything_and_nothing_of_it_runs_twice(scene: Scene) -> None:
    original = scene.original
    original.start()
    scene.apply()
    first, second = (original.start_run("queued") for _ in range(2))
    original.wait_started(first, "wait")
    load = Load(original)
    wait_until(lambda: len(ended(original, load.acknowledged)) >= BEFORE, "the load runs")
    known = list(load.acknowledged)
    whole = ended(original, known)
    printed = {each: original.log_of(each) for each in whole}
    path = scene.backup()
    kill_all(original)
    load.stop()
    (scene.directory / "original").rename(scene.directory / "gone")
    ran = scene.lines()

    target = scene.database()
    done = toban("restore", str(path), "--state-dir", str(scene.directory / "restored"), *target, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"] >= len(known)
    restored = scene.daemon("restored", *target)
    restored.start()

    # Everything that was acknowledged is there, byte for byte.
    for run_id in known:
        restored.get_run(run_id)
    assert {each: restored.log_of(each) for each in whole} == printed
    for run_id in whole:
        assert artifact_of(restored, run_id) == f"artifact of {run_id}".encode()
        for old in (scene.directory / "gone/runs" / run_id).rglob("*"):
            new = scene.directory / "restored" / old.relative_to(scene.directory / "gone")
            assert new.is_dir() if old.is_dir() else new.read_bytes() == old.read_bytes()

    # Nothing goes on: neither what ran, nor what waited, nor what is due or happens, also after another start.
    restored.emit("things.happened")
    asked = restored.start_run("load")
    for _ in range(2):
        wait_until(lambda: info_of(restored).recovery.HasField("finished_at"), "it recovers")
        wait_until(lambda: restored.get_run(first).state == run_pb2.RUN_STATE_FAILED, "what ran is lost")
        (lost,) = restored.processes(first)
        assert lost.state == run_pb2.PROCESS_STATE_LOST
        assert "active when the backup was made" in lost.error_message
        assert run_state(restored.get_run(second)) == run_state(restored.get_run(asked)) == "PENDING"
        seen = info_of(restored)
        assert seen.draining
        assert seen.pending_events
        assert [each.name for each in seen.health.conditions] == ["restored"]
        assert scene.lines() == ran
        restored.kill()
        restored.start()

    # Going live: what went on there is cancelled, then the rest goes on.
    unsure = run_pb2.ListRunsRequest(states=[run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING], page_size=1000)
    for run in restored.runs.ListRuns(unsure, timeout=CALL_WITHIN).runs:
        if run.id != asked:
            restored.cancel(run.id)
            restored.wait_run(run.id)
    Toban(restored)("system", "resume")
    assert run_state(restored.wait_run(asked)) == "SUCCEEDED"
    wait_until(lambda: any(line.startswith("hear ") for line in scene.lines()), "the event starts its run")
    assert not info_of(restored).health.conditions
    assert max(Counter(scene.lines()).values()) == 1
    restored.kill()
    restored.start()
    assert not info_of(restored).draining


@pytest.fixture(scope="module")
def ended_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A SQLite scene with a few ended runs, for all tests that follow."""
    with ExitStack() as databases:
        made = Scene(tmp_path_factory.mktemp("scene"), databases, "sqlite")
        try:
            made.original.start()
            made.apply()
            for _ in range(3):
                made.original.run("load")
            yield made
        finally:
            for daemon in made.daemons:
                daemon.clear()


@pytest.fixture
def stored(ended_runs: Scene) -> Iterator[Scene]:
    """The same, without what other tests restored from it."""
    yield ended_runs
    while len(ended_runs.daemons) > 1:
        ended_runs.daemons.pop().clear()
    shutil.rmtree(ended_runs.directory / "restored", ignore_errors=True)


def restore(scene: Scene, path: Path, name: str = "restored", **environment: str) -> Said:
    done = toban("restore", str(path), "--state-dir", str(scene.directory / name), environment=environment)
    assert done.returncode == 4, done.stderr
    return Said(done.stdout, done.stderr)


def test_a_backup_that_is_not_whole_is_refused_with_one_line(stored: Scene) -> None:
    whole = stored.backup().read_bytes()
    (stored.directory / "restored").mkdir()
    damaged = {
        "it is cut off": whole[: len(whole) * 2 // 3],
        "it is damaged": whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :],
        "it is not a backup of toban": b"something else\n" * 100,
    }
    for reason, content in damaged.items():
        path = stored.directory / "damaged.tar.gz"
        path.write_bytes(content)
        (line,) = restore(stored, path).err.splitlines()
        assert line.startswith(f"toban: cannot use the backup {path}: {reason}"), line
        assert os.listdir(stored.directory / "restored") == []
    path = stored.directory / "backup.tar.gz"
    (line,) = restore(stored, path, "original").err.splitlines()
    assert "the directory is not empty" in line


def test_a_restore_that_is_killed_leaves_nothing_to_start_and_can_be_repeated(stored: Scene) -> None:
    path = stored.backup()
    target = stored.directory / "restored"
    with postgres_schema() as url:
        for point in ("restore.begun", "restore.member", "restore.loaded"):
            armed = {"TOBAN_FAILPOINTS": f"{point}=kill"}
            killed = toban("restore", str(path), "--state-dir", str(target), "--database", url, environment=armed)
            assert killed.returncode != 0
        refused = subprocess.run(
            [sys.executable, "-m", "toband", "--state-dir", str(target), "--database", url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode == 1
        assert "a restore of it did not finish" in refused.stderr
        done = toban("restore", str(path), "--state-dir", str(target), "--database", url)
        assert done.returncode == 0, done.stderr
        restored = stored.daemon("restored", "--database", url)
        restored.start()
        wanted = run_pb2.ListRunsRequest(workflow="load")
        there, here = (each.runs.ListRuns(wanted, timeout=CALL_WITHIN).runs for each in (stored.original, restored))
        assert [run.id for run in here] == [run.id for run in there]
        stored.daemons.remove(restored)
        restored.clear()


def test_runs_that_are_deleted_meanwhile_are_left_out(stored: Scene) -> None:
    original = stored.original
    original.apply(
        "name: large\nsteps:\n  fill: {run: 'head -c 8000000 /dev/urandom > \"$TOBAN_CONTEXT_DIR/large\"'}\n"
    )
    large = original.run("large").id
    last = original.run("load").id
    messages = original.system.Backup(system_pb2.BackupRequest(), timeout=CALL_WITHIN)
    data = next(messages).data
    original.runs.DeleteRun(run_pb2.DeleteRunRequest(id=last), timeout=CALL_WITHIN)
    for message in messages:
        data += message.data
    assert message.summary.removed_runs == 1
    path = stored.directory / "backup.tar.gz"
    path.write_bytes(data)
    done = toban("restore", str(path), "--state-dir", str(stored.directory / "restored"))
    assert done.returncode == 0, done.stderr
    restored = stored.daemon("restored")
    restored.start()
    with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
        restored.get_run(last)
    assert run_state(restored.get_run(large)) == "SUCCEEDED"


def test_the_key_of_secrets_is_in_a_backup_only_on_request(stored: Scene) -> None:
    secrets = secret_pb2_grpc.SecretServiceStub(stored.original.channel)
    request = secret_pb2.SetSecretRequest(name="password", value="hunter2hunter2", workflows=["*"])
    secrets.SetSecret(request, timeout=CALL_WITHIN)
    for name, options, readable in (("without", (), False), ("with", ("--with-key",), True)):
        path = stored.backup(*options)
        done = toban("restore", str(path), "--state-dir", str(stored.directory / name))
        assert done.returncode == 0, done.stderr
        restored = stored.daemon(name)
        restored.start()
        (listed,) = Toban(restored)("secrets", "list", "-o", "json").data
        assert bool(listed["unreadable"]) is not readable
        info = info_of(restored)
        conditions = {each.name: each.detail for each in info.health.conditions}
        assert ("secrets" in conditions) is not readable
        assert readable or "steps cannot use secrets (password)" in conditions["secrets"]
        restored.stop()
        shutil.rmtree(stored.directory / name)
    entries = Toban(stored.original)("audit", "list", "-o", "json").data
    details = [each["detail"] for each in entries if each["method"] == "SystemService/Backup"]
    assert details[:2] == ["with_key=true", ""]
