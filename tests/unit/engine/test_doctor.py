"""The doctor's findings, with adapters of the test. tests/integration/daemon/test_doctor.py has real ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from contract.builders import save, with_workflow
from doubles.clock import Clock
from doubles.host import MIB, FakeDescriptors, FakeDisk
from doubles.store import FaultyStore
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_model import Run, RunState, StepRun
from toband.engine.access.audit_log import AuditLog
from toband.engine.health import doctor as module
from toband.engine.health.doctor import Doctor, Finding, FindingStatus
from toband.ports import (
    AttemptSeen,
    ClockReading,
    Inspection,
    Premises,
    RunDirectory,
    StepIsolation,
    StepProcess,
    Store,
    StoreError,
    WrongPath,
)
from toband.store import SqlStore

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
WHOLE = Inspection(problems=[], facts=["SQLite 3"], schema="0002", expected_schema="0002")


def attempt(state: AttemptState, age: float = 60.0) -> Attempt:
    at = NOW - timedelta(seconds=age)
    return Attempt(
        id="a",
        run_id="r",
        step="only",
        number=1,
        ordinal=0,
        token="t",
        state=state,
        created_at=at,
        pid=4711,
    )


def run_of(found: Attempt | None, state: RunState = RunState.RUNNING) -> Run:
    steps = {"only": StepRun(id="only", index=0, attempt=found)}
    return Run(id="r", workflow="w", version=1, state=state, created_at=NOW, steps=steps)


@dataclass
class FakePremises:
    state: AttemptSeen = AttemptSeen.LIVES
    directories: list[RunDirectory] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    wrong: list[WrongPath] = field(default_factory=list)
    processes: list[StepProcess] = field(default_factory=list)
    reading: ClockReading = field(default_factory=lambda: ClockReading(jumped=0.1, synchronised=True))
    spawner_pid: int | None = 99
    isolation: StepIsolation = field(default_factory=lambda: StepIsolation(daemon_user="toban", step_user="toban-step"))
    refuses: OSError | None = None
    done: list[str] = field(default_factory=list)

    def seen(self, attempt: Attempt) -> AttemptSeen:
        return self.state

    def log_name(self, attempt: Attempt) -> str:
        return f"{attempt.step}.log"

    def run_directories(self) -> Sequence[RunDirectory]:
        return self.directories

    def temporary_files(self, older: float, skip: Collection[str]) -> Sequence[str]:
        return self.files

    def _do(self, what: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.done.append(what)

    def remove_file(self, path: str) -> None:
        self._do(f"remove {path}")

    def wrong_paths(self) -> Sequence[WrongPath]:
        return self.wrong

    def repair(self, wrong: WrongPath) -> None:
        self._do(f"mend {wrong.path}")

    def step_processes(self) -> Sequence[StepProcess]:
        return list(self.processes)

    def end(self, processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
        self.done += [f"end {process.pid}" for process in processes]
        self.processes = [each for each in self.processes if each not in processes]
        return []

    def clock(self) -> ClockReading:
        return self.reading

    def spawner(self) -> int | None:
        return self.spawner_pid

    def cgroup(self) -> str:
        return "not used"

    def step_isolation(self) -> StepIsolation:
        return self.isolation


@dataclass
class Scene:
    store: FaultyStore
    premises: FakePremises = field(default_factory=FakePremises)
    disk: FakeDisk = field(default_factory=lambda: FakeDisk(held=16 * MIB))
    descriptors: FakeDescriptors = field(default_factory=FakeDescriptors)

    async def stores(self, run: Run) -> None:
        """The run as it is, with its attempt."""
        before = await self.store.get_run(run.id)
        if before is None:
            before = replace(run, state=RunState.PENDING, steps={"only": StepRun(id="only", index=0)})
            await self.store.create_run(before, max_active=None)
        await save(cast(Store, self.store), before, replace(run, sequence=before.sequence + 1))

    async def examine(self, *, repair: bool = False) -> dict[str, Finding]:
        """The worst status of each check."""
        doctor = Doctor(
            store=cast(Store, self.store),
            premises=cast(Premises, self.premises),
            disk=self.disk,
            descriptors=self.descriptors,
            clock=Clock(NOW),
            reserve=None,
            audit=AuditLog(cast(Store, self.store), Clock(NOW)),
        )
        order = list(FindingStatus)
        found: dict[str, Finding] = {}
        for each in await doctor.examine(repair=repair):
            before = found.get(each.check)
            if before is None or order.index(each.status) > order.index(before.status):
                found[each.check] = each
        return found


@pytest.fixture
async def scene(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.0)
    await with_workflow(store, "w")
    made = Scene(FaultyStore(store))
    made.store.answers["inspect"] = WHOLE
    return made


async def test_nothing_is_wrong(scene: Scene) -> None:
    await scene.stores(run_of(attempt(AttemptState.RUNNING)))
    found = await scene.examine(repair=True)
    assert {each.status for each in found.values()} == {FindingStatus.OK}
    assert scene.premises.done == []


async def test_a_child_run_has_no_supervisor_to_look_for(scene: Scene) -> None:
    child = replace(attempt(AttemptState.RUNNING), child=True, pid=None)
    scene.premises.state = AttemptSeen.ABSENT
    for state in (RunState.RUNNING, RunState.SUCCEEDED):
        await scene.stores(run_of(child, state))
        found = await scene.examine()
        assert found["attempts"].status is FindingStatus.OK
        assert found["logs"].status is FindingStatus.OK


async def test_a_damaged_database(scene: Scene) -> None:
    scene.store.answers["inspect"] = replace(WHOLE, problems=["page 7 is lost", "so is page 8"], schema="")
    found = await scene.examine(repair=True)
    assert found["database"].status is FindingStatus.FAILED
    assert found["database"].detail == "2 problems: page 7 is lost, so is page 8"
    assert "backup" in found["database"].hint
    assert "schema" not in found


async def test_a_schema_of_another_release(scene: Scene) -> None:
    scene.store.answers["inspect"] = replace(WHOLE, schema="0001")
    found = await scene.examine()
    assert found["schema"].detail == "version 0001, this release needs 0002"
    assert found["schema"].status is FindingStatus.FAILED


async def test_a_database_that_does_not_answer_keeps_nothing_else_from_being_looked_at(
    scene: Scene,
) -> None:
    for call in ("inspect", "try_write"):
        scene.store.fail(call, StoreError("the connection was lost"))
    found = await scene.examine()
    assert found["database"].detail == "cannot check: the connection was lost"
    assert found["space"].status is FindingStatus.OK


async def test_a_long_log_of_the_database_is_brought_in(scene: Scene) -> None:
    scene.store.answers["inspect"] = replace(WHOLE, ahead_bytes=100 * MIB)
    found = await scene.examine()
    assert found["database log"].status is FindingStatus.WARNING
    assert scene.store.calls["checkpoint"] == 0
    found = await scene.examine(repair=True)
    assert found["database log"].status is FindingStatus.REPAIRED
    assert scene.store.calls["checkpoint"] == 1


@pytest.mark.parametrize(
    ("state", "seen", "age", "wrong"),
    [
        (AttemptState.RUNNING, AttemptSeen.LIVES, 60, ""),
        (AttemptState.RUNNING, AttemptSeen.ABSENT, 60, "its attempt file is missing"),
        (AttemptState.STARTING, AttemptSeen.ABSENT, 60, ""),
        (AttemptState.STARTING, AttemptSeen.VOID, 60, "it never started"),
        (AttemptState.RUNNING, AttemptSeen.ENDED, 60, "it has ended"),
        (AttemptState.RUNNING, AttemptSeen.DEAD, 60, "its supervisor is gone and left no end record"),
        (AttemptState.RUNNING, AttemptSeen.ENDED, 5, ""),
        (AttemptState.COMPLETED, AttemptSeen.ENDED, 60, ""),
    ],
)
async def test_attempts_are_as_the_database_says(
    scene: Scene, state: AttemptState, seen: AttemptSeen, age: float, wrong: str
) -> None:
    await scene.stores(run_of(attempt(state, age)))
    scene.premises.state = seen
    found = (await scene.examine(repair=True))["attempts"]
    assert found.status is (FindingStatus.FAILED if wrong else FindingStatus.OK)
    if wrong:
        assert found.detail == f"1 active attempt not as in the database: w#1 only: {wrong}"


def directory(name: str, age: float = 7200.0, **more: frozenset[str]) -> RunDirectory:
    found = RunDirectory(name=name, age=age, logs=frozenset(), alive=frozenset())
    return replace(found, **more)  # type: ignore[arg-type]


async def test_directories_without_a_run_are_told_and_left_alone(scene: Scene) -> None:
    scene.premises.directories = [directory("x"), directory("young", age=60.0)]
    found = (await scene.examine(repair=True))["run directories"]
    assert found.status is FindingStatus.WARNING
    assert "1 directory without a run: x" in found.detail
    assert "toban system gc" in found.hint
    assert scene.premises.done == []


async def test_what_cannot_be_mended_is_told(scene: Scene) -> None:
    scene.premises.refuses = OSError(30, "Read-only file system")
    scene.premises.files = ["/state/a", "/state/b"]
    scene.premises.wrong = [WrongPath(path="/state", problem="is open", mode=0o750)]
    found = await scene.examine(repair=True)
    assert found["temporary files"].status is FindingStatus.WARNING
    assert found["permissions"].status is FindingStatus.FAILED
    assert "Read-only" in found["permissions"].detail


async def test_logs_of_ended_attempts(scene: Scene) -> None:
    await scene.stores(run_of(attempt(AttemptState.COMPLETED), RunState.SUCCEEDED))
    scene.premises.directories = [directory("r", logs=frozenset({"only.log"}))]
    assert (await scene.examine())["logs"].status is FindingStatus.OK
    scene.premises.directories = [directory("r")]
    assert (await scene.examine())["logs"].detail.endswith("of ended attempts: r/only.log")


async def test_a_supervisor_of_an_ended_run(scene: Scene) -> None:
    await scene.stores(run_of(attempt(AttemptState.COMPLETED), RunState.SUCCEEDED))
    log = frozenset({"only.log"})
    scene.premises.directories = [directory("r", logs=log, alive=log)]
    assert (await scene.examine())["supervisors"].status is FindingStatus.FAILED


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (ClockReading(jumped=3600.4, synchronised=True), "it was changed by +3600 seconds"),
        (ClockReading(jumped=-7.0, synchronised=None), "it was changed by -7 seconds"),
        (ClockReading(jumped=0.0, synchronised=False), "not synchronised by a time service"),
    ],
)
async def test_a_clock_that_cannot_be_relied_on(scene: Scene, reading: ClockReading, words: str) -> None:
    scene.premises.reading = reading
    found = (await scene.examine())["clock"]
    assert found.status is FindingStatus.WARNING
    assert words in found.detail


async def test_a_run_of_the_future(scene: Scene) -> None:
    await scene.stores(replace(run_of(None), created_at=NOW + timedelta(hours=1)))
    assert "run r is in the future" in (await scene.examine())["clock"].detail


async def test_too_little_space(scene: Scene) -> None:
    scene.disk.free, scene.disk.held = 10 * MIB, 0
    scene.disk.inodes, scene.disk.free_inodes = 100, 3
    found = await scene.examine(repair=True)
    assert found["space"].detail == "/state: 10 MiB of 1000 MiB free, the reserve is 50 MiB"
    assert found["inodes"].detail == "/state: 3 of 100 inodes free, the reserve is 5"
    assert found["space"].status is found["inodes"].status is FindingStatus.FAILED
    assert found["ballast"].status is FindingStatus.WARNING
    assert scene.disk.held == 0, "there is no room for it"


async def test_ballast_is_made_whole(scene: Scene) -> None:
    scene.disk.held = 0
    assert (await scene.examine())["ballast"].status is FindingStatus.WARNING
    assert (await scene.examine(repair=True))["ballast"].status is FindingStatus.REPAIRED
    assert scene.disk.held == scene.disk.ballast


async def test_a_state_directory_that_takes_no_writes(scene: Scene) -> None:
    scene.disk.refuses = OSError(30, "Read-only file system")
    found = (await scene.examine())["state directory"]
    assert (found.status, "Read-only" in found.detail) == (FindingStatus.FAILED, True)


def process(pid: int, token: str = "gone", ours: bool = True) -> StepProcess:
    return StepProcess(pid=pid, start=1.0, token=token, run_id="r", command="sleep", parent="init", ours=ours)


async def test_only_our_processes_of_ended_attempts_are_ended(scene: Scene) -> None:
    await scene.stores(run_of(attempt(AttemptState.RUNNING)))
    scene.premises.processes = [process(1, "t"), process(2), process(3, ours=False)]
    found = await scene.examine()
    assert found["stray processes"].detail == "1 process of ended attempts: 2 (sleep)"
    assert scene.premises.done == []
    found = await scene.examine(repair=True)
    assert found["stray processes"].detail == "ended 1 process of ended attempts: 2"
    assert scene.premises.done == ["end 2"]


async def test_what_is_born_while_others_are_ended_is_ended_too(scene: Scene) -> None:
    class Forking(FakePremises):
        def end(self, processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
            super().end(processes)
            if processes[0].pid < 4:
                self.processes.append(process(processes[0].pid + 1))
            return []

    scene.premises = Forking(processes=[process(2)])
    found = await scene.examine(repair=True)
    assert scene.premises.done == ["end 2", "end 3", "end 4"]
    assert found["stray processes"].status is FindingStatus.REPAIRED


async def test_a_spawner_that_died_and_one_that_nobody_needs(scene: Scene) -> None:
    scene.premises.spawner_pid = 0
    assert (await scene.examine())["spawner"].status is FindingStatus.FAILED
    scene.premises.spawner_pid = None
    assert "spawner" not in await scene.examine()


async def test_few_descriptors_are_left(scene: Scene) -> None:
    scene.descriptors.found = (90, 100)
    assert (await scene.examine())["descriptors"].status is FindingStatus.WARNING
    scene.descriptors.found = None
    assert "descriptors" not in await scene.examine()


async def test_steps_that_share_the_daemons_user_are_told(scene: Scene) -> None:
    found = await scene.examine()
    assert found["step user"].status is FindingStatus.OK
    assert found["step user"].detail == "steps run as toban-step, the daemon as toban"
    assert found["sandbox"].detail == "files; network: none"
    scene.premises.isolation = StepIsolation(daemon_user="toban", step_user="toban", no_files="Landlock is missing")
    found = await scene.examine()
    assert found["step user"].status is FindingStatus.WARNING
    assert "roles and secrets are no boundary" in found["step user"].detail
    assert found["sandbox"].detail == "files: not available: Landlock is missing; network: none"


async def test_second_names_matter_where_steps_have_a_user(scene: Scene) -> None:
    scene.premises.isolation = replace(scene.premises.isolation, links_protected=False)
    assert (await scene.examine())["hard links"].status is FindingStatus.WARNING
    scene.premises.isolation = replace(scene.premises.isolation, step_user="toban")
    assert "hard links" not in await scene.examine()
