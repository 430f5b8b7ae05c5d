"""Listing and downloading the artifacts of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contract.builders import with_workflow
from toban.definition import Output
from toband.domain.run_model import Artifact, Run, StepRun
from toband.engine.errors import ArtifactNotFoundError, RunNotFoundError, StepNotFoundError
from toband.engine.runs.run_artifacts import RunArtifacts
from toband.ports import Collect
from toband.store import SqlStore
from toband.supervise.artifacts.artifact_store import ArtifactFiles
from toband.supervise.files.run_files import RunFiles


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[ArtifactFiles]:
    made = ArtifactFiles(RunFiles(str(tmp_path / "runs")))
    yield made
    await made.close()


@pytest.fixture
async def asked(tmp_path: Path, files: ArtifactFiles, store: SqlStore) -> RunArtifacts:
    """A run whose steps `first` and `many[0]`, `many[10]` left something."""
    workspace = tmp_path / "work"
    (workspace / "tree").mkdir(parents=True)
    for name in ("one", "tree/a", "tree/b", "empty"):
        (workspace / name).write_text(name if name != "empty" else "")
    outputs = [Output(name=name, path=name) for name in ("one", "tree", "empty")]

    async def kept(folder: str) -> tuple[Artifact, ...]:
        return await files.collect(
            Collect(
                context=str(tmp_path / "context"),
                folder=folder,
                workspace=str(workspace),
                outputs=outputs,
            )
        )

    many = {
        f"many[{number}]": StepRun(
            id=f"many[{number}]",
            index=1,
            parent="many",
            instance=number,
            artifacts=(await kept(f"many/{number}"))[:1],
        )
        for number in (10, 0)
    }
    first = StepRun(id="first", index=0, artifacts=await kept("first"))
    group = StepRun(id="many", index=1, instances=11)
    last = StepRun(id="last", index=2)
    steps = {**many, "last": last, "many": group, "first": first}
    run = Run(id="r", workflow="w", version=1, created_at=datetime(2026, 2, 1, tzinfo=UTC), steps=steps)

    async def context_of(_: Run) -> str:
        return str(tmp_path / "context")

    await with_workflow(store, "w")
    await store.create_run(run, max_active=None)
    return RunArtifacts(store, files, context_of)


def shown(found: object) -> list[tuple[str, str, list[str]]]:
    return [
        (step, artifact.name, [file.path for file in files])
        for step, artifact, files in found  # type: ignore[attr-defined]
    ]


async def read(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def test_all_of_a_run_or_those_of_a_step(asked: RunArtifacts) -> None:
    first = [
        ("first", "one", ["one"]),
        ("first", "tree", ["tree/a", "tree/b"]),
        ("first", "empty", ["empty"]),
    ]
    many = [("many[0]", "one", ["one"]), ("many[10]", "one", ["one"])]
    assert shown(await asked.list("r")) == first + many
    assert shown(await asked.list("r", "first")) == first
    assert shown(await asked.list("r", "many")) == many
    assert shown(await asked.list("r", "many[10]")) == many[1:]
    assert shown(await asked.list("r", "last")) == []
    with pytest.raises(RunNotFoundError):
        await asked.list("other")
    with pytest.raises(StepNotFoundError):
        await asked.list("r", "many[3]")


async def test_bytes(asked: RunArtifacts) -> None:
    assert await read(await asked.download("r", "first", "one")) == b"one"
    assert await read(await asked.download("r", "first", "empty")) == b""
    assert await read(await asked.download("r", "first", "tree", "tree/b")) == b"tree/b"
    assert b"tree/a" in await read(await asked.download("r", "first", "tree"))


@pytest.mark.parametrize(
    ("step", "name", "path", "error"),
    [
        ("absent", "one", "", StepNotFoundError),
        ("first", "two", "", ArtifactNotFoundError),
        ("many", "one", "", ArtifactNotFoundError),
        ("first", "tree", "tree/c", ArtifactNotFoundError),
        ("first", "tree", "../one/one", ArtifactNotFoundError),
    ],
)
async def test_what_there_is_not_is_said_before_any_byte(
    asked: RunArtifacts, step: str, name: str, path: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await asked.download("r", step, name, path)
    with pytest.raises(RunNotFoundError):
        await asked.download("other", step, name, path)


async def test_what_is_gone_from_the_disk(asked: RunArtifacts, tmp_path: Path) -> None:
    (tmp_path / "context").rename(tmp_path / "moved")
    assert {len(files) for _, _, files in await asked.list("r")} == {0}
    with pytest.raises(ArtifactNotFoundError):
        await asked.download("r", "first", "one")
