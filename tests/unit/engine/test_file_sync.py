"""Which definitions follow which files, with files and a store of the test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from doubles.clock import Clock
from doubles.conditions import Conditions
from doubles.sandbox import InlineSandbox
from toban.definition import DefinitionKind, Parsed, parse
from toband.engine.definitions import file_status
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.file_loader import (
    FileLoader,
    FileReader,
    LoadResult,
    ReadFile,
    UnusableFileError,
)
from toband.engine.definitions.file_sync import FileSync
from toband.ports import (
    ActiveRunError,
    HealthStatus,
    KnownFile,
    Listing,
    Mark,
    OverLimitError,
    PutOutcome,
    Store,
    StoredWorkflow,
    StoreError,
)

NOW = datetime(2026, 2, 1, tzinfo=UTC)
REMOVED = " (removed)"
"""Behind the path of an owner that does not have the definition any more."""
FLOWS = os.path.join(os.sep, "flows")
A, B, C = (os.path.join(FLOWS, name) for name in ("a.yaml", "b.yaml", "c.yaml"))
ELSEWHERE = os.path.join(os.sep, "other", "c.yaml")


def definition(*names: str, job: str = "") -> str:
    step = f"{{job: {job}}}" if job else "{run: 'true'}"
    return "---\n".join(f"name: {name}\ndescription: x\nsteps: {{only: {step}}}\n" for name in names)


@dataclass
class Source:
    """Files by path; every write gives a new mark."""

    texts: dict[str, bytes] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    young: frozenset[str] = frozenset()
    reads: list[str] = field(default_factory=list)
    looks: int = 0

    def write(self, path: str, text: str | bytes) -> None:
        self.texts[path] = text.encode() if isinstance(text, str) else text
        number = self.marks[path].inode + 1 if path in self.marks else 1
        self.marks[path] = Mark(device=1, inode=number, size=1, modified_ns=1, changed_ns=1)

    def remove(self, path: str) -> None:
        del self.texts[path]

    async def look(self) -> Listing:
        self.looks += 1
        files = {path: self.marks[path] for path in self.texts}
        return Listing(files=files, unreadable=dict(self.unreadable), young=self.young)

    async def read(self, paths: Sequence[str]) -> Mapping[str, bytes | OSError]:
        self.reads += paths
        denied = PermissionError(13, "Permission denied")
        return {path: denied if path in self.denied else self.texts[path] for path in paths}

    async def changed(self, within: float) -> None:
        raise AssertionError("nobody waits here")


@dataclass
class Memory:
    """What daemons tell each other, and how often one did."""

    files: dict[str, KnownFile] = field(default_factory=dict)
    told: list[set[str]] = field(default_factory=list)

    async def recall(self) -> Mapping[str, KnownFile]:
        return dict(self.files)

    async def remember(self, files: Mapping[str, KnownFile], changed: Collection[str]) -> None:
        self.files = dict(files)
        self.told.append(set(changed))


@dataclass
class Stored:
    """Owners by name, as a store and a loader of files would keep them."""

    owners: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    changed_at: dict[str, datetime] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    lists: int = 0
    meddle: str = ""
    disabled: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    failing: bool = False
    surprises: dict[str, Exception] = field(default_factory=dict)

    async def load(self, file: ReadFile, take_over: Mapping[str, str]) -> LoadResult:
        if self.failing:
            raise StoreError("the disk is gone")
        if file.path in self.surprises:
            raise self.surprises[file.path]
        self.kept.append(file.path)
        names = set(file.names)
        for document in file.documents:
            if not document.uses <= self.jobs | names:
                raise UnusableFileError([f"{file.path}: unknown job"])
        for name in names:
            if self.owners.get(name, file.path).removesuffix(REMOVED) not in (file.path, take_over.get(name)):
                raise UnusableFileError([f"{file.path}: {name} is taken"])
        outcomes = {}
        at = NOW + timedelta(seconds=len(self.kept))
        for document in file.documents:
            name = document.name
            if self.owners.get(name) == file.path and self.sources[name] == document.source:
                outcomes[name] = PutOutcome.UNCHANGED
                continue
            outcomes[name] = PutOutcome.UPDATED if name in self.owners else PutOutcome.CREATED
            self.owners[name] = file.path
            self.edit(name, document.source, at)
            self.disabled.discard(name)
            if document.kind is DefinitionKind.JOB:
                self.jobs.add(name)
        if self.meddle:
            self.edit(self.meddle, "by somebody else", at + timedelta(microseconds=1))
            self.meddle = ""
        return LoadResult(outcomes=outcomes, warnings=(f"{file.path}: mind this",), at=at)

    def edit(self, name: str, source: str, at: datetime) -> None:
        self.sources[name], self.changed_at[name] = source, at

    async def list_file_owned(self) -> Sequence[StoredWorkflow]:
        self.lists += 1
        return [
            StoredWorkflow(
                name=name,
                title="",
                description="",
                labels={},
                enabled=name not in self.disabled,
                version=1,
                owner=owner.removesuffix(REMOVED),
                owner_removed=owner.endswith(REMOVED),
                created_at=NOW,
                updated_at=self.changed_at.get(name, NOW),
                etag="",
                kind=DefinitionKind.JOB if name in self.jobs else DefinitionKind.WORKFLOW,
            )
            for name, owner in sorted(self.owners.items())
            if owner != "api"
        ]

    async def disown_definition(self, name: str, owner: str, *, at: datetime) -> bool:
        self.owners[name] = owner + REMOVED
        self.disabled.add(name)
        return True

    async def delete_workflow(self, name: str, *, at: datetime, kind: DefinitionKind) -> bool:
        if name in self.active:
            raise ActiveRunError("r", f"{name}#1")
        return self.owners.pop(name, None) is not None


@dataclass
class Log:
    """Errors that were logged."""

    errors: list[dict[str, Any]] = field(default_factory=list)

    def error(self, text: str, **facts: Any) -> None:
        self.errors.append(facts)

    def info(self, text: str, **facts: Any) -> None: ...


class Sandbox(InlineSandbox):
    """Texts with the word `hard` in them take too long, those with `slow` as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def call(self, function: Any, *args: Any, key: str, seconds: float) -> Any:
        if b"slow" in args[0]:
            await self.gate.wait()
        result = await super().call(function, *args, key=key, seconds=seconds)
        if b"hard" in args[0]:
            raise OverLimitError("it took longer than 30 s")
        return result


class Scene:
    def __init__(self, *, delete: bool = False) -> None:
        self.source, self.stored, self.health = Source(), Stored(), Conditions(HealthStatus.DEGRADED)
        self.memory = Memory()
        self.sandbox = Sandbox()
        self.rung = 0
        self.delete = delete
        self.restart()

    def restart(self) -> None:
        self.files = FileSync(
            source=self.source,
            memory=self.memory,
            loader=cast(FileLoader, self.stored),
            reader=FileReader(DefinitionParser(self.sandbox)),
            store=cast(Store, self.stored),
            clock=Clock(NOW),
            conditions=self.health,
            changed=self._changed,
            read=asyncio.Event(),
            delete_removed=self.delete,
            watch=False,
        )

    def _changed(self) -> None:
        self.rung += 1

    async def look(self) -> None:
        self.source.reads.clear()
        self.stored.kept.clear()
        async with asyncio.timeout(30):
            await self.files.run()

    def broken(self) -> list[str]:
        return [state.path for state in self.files.states if state.broken]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_only_what_changed_is_read(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    scene.source.write(B, definition("two"))
    await scene.look()
    assert scene.stored.owners == {"one": A, "two": B}
    assert scene.source.reads == [A, B]
    rung = scene.rung
    assert rung > 0
    await scene.look()
    assert (scene.rung, scene.source.reads) == (rung, [])
    scene.source.write(B, definition("two", "three"))
    await scene.look()
    assert (scene.stored.owners["three"], scene.source.reads) == (B, [B])
    scene.source.reads.clear()
    assert await scene.files.reload() == []
    assert scene.source.reads == [A, B]


async def test_what_is_stored_as_it_stands_in_the_file_is_not_stored_again(scene: Scene) -> None:
    scene.source.write(A, definition("one", "two"))
    scene.source.write(B, definition("three"))
    await scene.look()
    before = scene.files.states
    assert scene.stored.kept == [A, B]
    scene.restart()
    await scene.look()
    # It was looked into all the same: nobody trusts marks of another time.
    assert (scene.source.reads, scene.stored.kept) == ([A, B], [])
    assert [(state.path, state.names, state.problems) for state in scene.files.states] == [
        (state.path, state.names, state.problems) for state in before
    ]
    assert all(state.loaded_at is not None for state in scene.files.states)
    assert len(scene.memory.told) == 1
    scene.stored.kept.clear()
    await scene.files.reload()
    assert scene.stored.kept == []
    scene.source.write(B, definition("three") + "# and more\n")
    scene.restart()
    await scene.look()
    assert scene.stored.kept == [B]
    assert scene.memory.told[1:] == [{B}]
    scene.source.remove(B)
    await scene.look()
    assert scene.memory.files.keys() == {A}


@pytest.mark.parametrize("restart", [True, False])
async def test_a_definition_that_somebody_changed_is_stored_from_its_file_again(scene: Scene, restart: bool) -> None:
    text = definition("one")
    scene.source.write(A, text)
    await scene.look()
    scene.stored.edit("one", "by hand", NOW + timedelta(hours=1))
    if restart:
        scene.restart()
    assert [change.name for change in await scene.files.reload()] == ["one"]
    assert scene.stored.sources["one"] == text
    # So is one that is gone, and one that nobody owned any more.
    del scene.stored.owners["one"]
    assert [change.name for change in await scene.files.reload()] == ["one"]
    scene.stored.owners["one"] = A + REMOVED
    assert [change.name for change in await scene.files.reload()] == ["one"]
    assert await scene.files.reload() == []


async def test_a_change_right_after_a_file_was_stored_is_not_taken_for_that_of_the_file(
    scene: Scene,
) -> None:
    text = definition("one")
    scene.source.write(A, text)
    scene.stored.meddle = "one"
    await scene.look()
    assert scene.stored.sources["one"] == "by somebody else"
    assert scene.memory.files == {}
    scene.restart()
    await scene.look()
    assert scene.stored.sources["one"] == text
    # Nor one right after it was found to be unchanged.
    scene.memory.files.clear()
    scene.stored.meddle = "one"
    scene.restart()
    await scene.look()
    assert scene.stored.sources["one"] == "by somebody else"
    assert scene.memory.files == {}


async def test_a_look_that_finds_nothing_new_asks_nobody(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    await scene.look()
    lists = scene.stored.lists
    await scene.look()
    assert scene.stored.lists == lists
    scene.source.remove(A)
    await scene.look()
    assert scene.stored.disabled == {"one"}


async def test_a_broken_file_is_tried_again_although_nothing_changed(scene: Scene) -> None:
    scene.source.write(A, definition("one", job="tool"))
    await scene.look()
    assert scene.broken() == [A]
    scene.stored.jobs.add("tool")
    await scene.look()
    assert scene.broken() == []


async def test_a_file_that_is_hard_to_read_delays_no_other(scene: Scene) -> None:
    hard = f"{definition('one')}# hard {'x' * 20_000}\n"
    scene.source.write(A, hard)
    scene.source.write(B, f"{definition('two')}# {'x' * 20_000}\n")
    scene.source.write(C, definition("three"))
    await scene.look()
    assert scene.stored.owners == {"two": B, "three": C}
    assert scene.stored.kept == [C, B]
    assert scene.broken() == [A]
    (state,) = [state for state in scene.files.states if state.path == A]
    message = "cannot read the definition: it took longer than 30 s; simplify or split it"
    assert message in state.problems[0]
    # As long as it stays as it is, nobody tries again.
    asked = len(scene.sandbox.asked)
    await scene.look()
    assert (len(scene.sandbox.asked), scene.broken()) == (asked, [A])
    scene.source.write(A, hard.replace("hard", "easy"))
    await scene.look()
    assert scene.broken() == []
    assert scene.stored.owners["one"] == A


async def test_a_file_that_is_still_being_read_delays_no_change_of_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toband.engine.definitions.file_sync.PATIENCE", 0.01)
    monkeypatch.setattr("toband.engine.definitions.file_sync.FIRST_PATIENCE", 0.01)
    scene.source.write(A, definition("one"))
    await scene.look()
    slow = f"{definition('new')}# slow {'x' * 20_000}\n"
    scene.source.write(A, slow)
    scene.source.write(B, definition("two"))
    await scene.look()
    # What the slow file defined before stays until it is read.
    assert (scene.stored.owners, scene.broken()) == ({"one": A, "two": B}, [])
    scene.source.write(B, definition("three"))
    await scene.look()
    assert (scene.stored.owners["three"], scene.stored.disabled) == (B, {"two"})
    scene.sandbox.gate.set()
    await scene.look()
    await scene.look()
    assert scene.stored.owners["new"] == A
    assert scene.stored.disabled == {"one", "two"}
    assert len(scene.sandbox.asked) == 1


async def test_many_files_are_stored_together(scene: Scene) -> None:
    names = [f"n{number:03}" for number in range(150)]
    paths = {name: os.path.join(FLOWS, f"{name}.yaml") for name in names}
    for name, path in paths.items():
        scene.source.write(path, definition(name))
    await scene.look()
    assert scene.stored.owners == paths
    scene.restart()
    scene.source.write(paths["n007"], "name: [")
    await scene.look()
    assert (scene.stored.owners, scene.stored.kept) == (paths, [])
    assert scene.broken() == [paths["n007"]]


async def test_one_that_cannot_be_stored_keeps_none_beside_it_from_being(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    scene.stored.owners["two"] = "api"
    scene.source.write(B, definition("two"))
    scene.source.write(ELSEWHERE, definition("three"))
    await scene.look()
    assert scene.broken() == [B]
    assert scene.stored.owners == {"one": A, "two": "api", "three": ELSEWHERE}


@pytest.mark.parametrize("text", ["name: [", b"\xff\xfe", "", definition("one") + "---\nname: 5\n"])
async def test_a_broken_file_keeps_what_it_had(scene: Scene, text: str | bytes) -> None:
    scene.source.write(A, definition("one"))
    await scene.look()
    scene.source.write(A, text)
    for _ in range(2):
        await scene.look()
        (state,) = scene.files.states
        assert (state.broken, state.names) == (True, ("one",))
        assert state.problems
        assert scene.stored.owners == {"one": A}
        assert A in scene.health.now["definitions"]
        # The next daemon knows it from the store.
        scene.restart()
    scene.source.write(A, definition("one"))
    await scene.look()
    assert scene.broken() == []
    assert scene.health.now == {}


async def test_a_file_that_cannot_be_read_is_broken(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    await scene.look()
    scene.source.write(A, definition("other"))
    scene.source.denied.add(A)
    await scene.look()
    (state,) = scene.files.states
    assert state.problems == (f"cannot read {A}: Permission denied",)
    assert scene.stored.owners == {"one": A}
    # Nothing tells that it may be read from now on: it is tried with every look.
    scene.source.denied.clear()
    await scene.look()
    assert scene.stored.owners == {"one": A + REMOVED, "other": A}


async def test_a_place_that_cannot_be_looked_at_keeps_what_it_had(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    await scene.look()
    scene.source.remove(A)
    scene.source.unreadable[FLOWS] = "Stale file handle"
    scene.source.write(ELSEWHERE, definition("one"))
    for _ in range(2):
        await scene.look()
        assert scene.stored.owners == {"one": A}
        assert scene.broken() == [FLOWS, ELSEWHERE]
        scene.restart()
    scene.source.unreadable.clear()
    await scene.look()
    assert scene.stored.owners == {"one": ELSEWHERE}


async def test_what_is_removed_is_disabled_and_comes_back(scene: Scene) -> None:
    scene.source.write(A, definition("one", "two"))
    await scene.look()
    scene.source.write(A, definition("one"))
    await scene.look()
    assert scene.stored.disabled == {"two"}
    scene.source.remove(A)
    await scene.look()
    assert scene.stored.disabled == {"one", "two"}
    assert scene.files.states == []
    rung = scene.rung
    await scene.look()
    assert scene.rung == rung
    scene.source.write(B, definition("two"))
    await scene.look()
    assert scene.stored.owners == {"one": A + REMOVED, "two": B}
    assert scene.stored.disabled == {"one"}


async def test_what_is_removed_is_deleted_as_soon_as_it_can_be() -> None:
    scene = Scene(delete=True)
    scene.source.write(A, definition("one", "two"))
    await scene.look()
    scene.source.remove(A)
    scene.stored.active.add("two")
    await scene.look()
    assert scene.stored.owners == {"two": A + REMOVED}
    scene.stored.active.clear()
    scene.restart()
    await scene.look()
    assert scene.stored.owners == {}


async def test_a_renamed_file_and_a_definition_that_moves_stay_enabled(scene: Scene) -> None:
    scene.source.write(B, definition("one", "two"))
    await scene.look()
    scene.source.remove(B)
    scene.source.write(A, definition("one", "two"))
    await scene.look()
    assert scene.stored.owners == {"one": A, "two": A}
    scene.source.write(A, definition("one"))
    scene.source.write(B, definition("two"))
    changes = await scene.files.reload()
    assert scene.stored.owners == {"one": A, "two": B}
    assert {change.kind.value for change in changes} == {"updated"}
    assert scene.stored.disabled == set()


async def test_a_name_belongs_to_the_file_that_had_it_first(scene: Scene) -> None:
    scene.source.write(B, definition("one"))
    await scene.look()
    scene.source.write(A, definition("one", "two"))
    await scene.look()
    assert scene.broken() == [A]
    assert scene.files.states[0].problems == (f"{A}:1:1: 'one' is defined twice: also in {B}",)
    assert scene.stored.owners == {"one": B}
    scene.source.remove(B)
    await scene.look()
    assert scene.stored.owners == {"one": A, "two": A}


async def test_jobs_of_other_files_may_come_later(scene: Scene) -> None:
    job = "jobs: {tool: {description: x, run: 'true'}}\n"
    scene.source.write(A, definition("one", job="tool"))
    await scene.look()
    assert scene.broken() == [A]
    scene.source.write(B, job)
    await scene.look()
    assert scene.broken() == []
    assert scene.stored.owners == {"one": A, "tool": B}


async def test_a_store_that_fails_makes_no_file_broken(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    scene.stored.failing = True
    with pytest.raises(StoreError):
        await scene.files.reload()
    assert scene.broken() == []
    assert "the disk is gone" in scene.health.now["definitions"]
    scene.stored.failing = False
    await scene.look()
    assert scene.stored.owners == {"one": A}
    assert scene.health.now == {}


async def test_what_nobody_expected_of_a_file_is_a_problem_of_that_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr("toband.engine.definitions.file_status.log", log)
    scene.source.write(A, definition("one"))
    await scene.look()
    scene.source.write(A, definition("one", "two"))
    scene.source.write(B, definition("three"))
    scene.source.write(ELSEWHERE, definition("four", job="tool"))
    scene.stored.surprises[A] = OverflowError("date value out of range")
    scene.stored.jobs.add("tool")
    for _ in range(2):
        await scene.look()
        assert scene.broken() == [A]
        assert scene.stored.owners == {"one": A, "three": B, "four": ELSEWHERE}
    told = "internal error OverflowError: date value out of range; please report it"
    assert scene.files.states[0].problems == (f"{A}: {told}",)
    assert told in scene.health.now["definitions"]
    # Once, and with where it comes from.
    [line] = log.errors
    assert line["exc_info"] is scene.stored.surprises[A]
    scene.stored.surprises.clear()
    await scene.look()
    assert scene.stored.owners["two"] == A
    assert scene.health.now == {}


async def test_a_file_that_cannot_even_be_checked_keeps_none_beside_it_from_being(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(data: bytes, path: str) -> Parsed:
        if path == A:
            raise ZeroDivisionError("division by zero")
        return parse(data, path)

    monkeypatch.setattr("toband.engine.definitions.file_loader.parse", check)
    scene.source.write(A, definition("one"))
    scene.source.write(B, definition("two"))
    await scene.look()
    assert scene.broken() == [A]
    assert "internal error ZeroDivisionError" in scene.files.states[0].problems[0]
    assert scene.stored.owners == {"two": B}


async def test_it_is_told_that_files_cannot_be_followed_until_they_can(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> Listing:
        raise RuntimeError("nobody knows why")

    scene.source.write(A, "name: [")
    monkeypatch.setattr(scene.source, "look", fail)
    with pytest.raises(RuntimeError):
        await scene.files.reload()
    assert "RuntimeError: nobody knows why" in scene.health.now["definitions"]
    monkeypatch.undo()
    await scene.look()
    assert "nobody knows why" not in scene.health.now["definitions"]
    scene.source.write(A, definition("one"))
    await scene.look()
    assert scene.health.now == {}


async def test_a_problem_can_be_shown_whatever_it_is_about(scene: Scene) -> None:
    scene.source.write(A, definition("one"))
    scene.stored.surprises[A] = ValueError("half of a pair: \ud800")
    await scene.look()
    assert scene.files.states[0].problems[0].encode()
    assert scene.health.now["definitions"].encode()


async def test_a_file_that_is_always_written_to_is_read_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toband.engine.definitions.file_sync.SETTLE", 0.0)
    scene.source.write(A, definition("one"))
    scene.source.young = frozenset({A})
    await scene.look()
    assert scene.stored.owners == {"one": A}
    assert scene.source.looks > 1
    # It may have changed once more within the same moment.
    await scene.look()
    assert scene.source.reads == [A]


async def test_many_problems_are_cut(scene: Scene) -> None:
    text = definition("one") + "".join(f"field{number}: 1\n" for number in range(40))
    scene.source.write(A, text)
    await scene.look()
    (state,) = scene.files.states
    assert len(state.problems) == 20
    assert state.problems[-1] == "and 21 more"
    assert replace(state, problems=()).loaded_at is None


async def test_the_log_tells_once_what_is_worth_knowing_of_a_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(file_status, "log", SimpleNamespace(warning=lambda *_, path, **__: told.append(path)))
    scene.source.write(A, definition("one"))
    await scene.look()
    await scene.files.reload()
    scene.restart()
    await scene.look()
    assert told == [A]
    assert [state.problems for state in scene.files.states] == [(f"{A}: mind this",)]
