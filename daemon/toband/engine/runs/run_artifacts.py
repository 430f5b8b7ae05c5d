"""Artifacts of a run: lists and reads what its steps left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from toband.domain.run_model import Artifact, Run
from toband.engine.errors import ArtifactNotFoundError, RunNotFoundError, StepNotFoundError
from toband.ports import ArtifactError, Artifacts, RunStore, Stored


class RunArtifacts:
    """`context_of` returns the directory of a run's artifacts. A run has its own copies of results that it kept."""

    def __init__(self, store: RunStore, artifacts: Artifacts, context_of: Callable[[Run], Awaitable[str]]) -> None:
        self._store = store
        self._artifacts = artifacts
        self._context_of = context_of

    async def list(self, run_id: str, step: str = "") -> Sequence[tuple[str, Artifact, Sequence[Stored]]]:
        """Step, artifact and files, in the order of the definition; `step` restricts it to one step and its instances.

        An artifact that is missing on disk has no files. Raises RunNotFoundError, StepNotFoundError.
        """
        run = await self._run(run_id)
        if step and step not in run.steps:
            raise StepNotFoundError(run, step)
        chosen = [each for each in run.steps.values() if not step or step in (each.id, each.parent)]
        chosen.sort(key=lambda each: (each.index, -1 if each.instance is None else each.instance))
        if not any(each.artifacts for each in chosen):
            return []
        context = await self._context_of(run)
        found = []
        for each in chosen:
            for artifact in each.artifacts:
                try:
                    files = await self._artifacts.files(context, artifact)
                except ArtifactError:
                    files = []
                found.append((each.id, artifact, files))
        return found

    async def download(self, run_id: str, step: str, name: str, path: str = "") -> AsyncIterator[bytes]:
        """The bytes of one file. Without a path: of the only file, or of a tar archive of all files.

        Raises RunNotFoundError, StepNotFoundError, ArtifactNotFoundError, all before it returns.
        """
        run = await self._run(run_id)
        if step not in run.steps:
            raise StepNotFoundError(run, step)
        found = [each for each in run.steps[step].artifacts if each.name == name]
        if not found:
            raise ArtifactNotFoundError(run_id, step, name)
        pieces = self._artifacts.read(await self._context_of(run), found[0], path)
        try:
            first = await anext(pieces, b"")
        except ArtifactError as error:
            raise ArtifactNotFoundError(run_id, step, name, path) from error
        return _all(first, pieces)

    async def _run(self, run_id: str) -> Run:
        run = await self._store.get_run(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        return run


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in rest:
        yield piece
