"""Artifact RPCs of the RunService: ListArtifacts and DownloadArtifact."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Sequence

from toban.safe_text import sendable
from toban.v1 import run_pb2 as pb
from toband.api import pages, run_messages
from toband.api.request_errors import InvalidFieldError
from toband.domain.plan import Plan
from toband.domain.run_model import Artifact
from toband.engine.errors import ArtifactNotFoundError
from toband.engine.runs.run_artifacts import RunArtifacts
from toband.ports import Stored

FILES = 1000
CHUNK = 256 * 1024
"""Bytes of data in one message, far below the limit of every client."""
_BETWEEN = "\n"


class ArtifactRpcs:
    def __init__(self, artifacts: RunArtifacts) -> None:
        self._artifacts = artifacts

    async def page(self, request: pb.ListArtifactsRequest, plan: Plan | None) -> pb.ListArtifactsResponse:
        """`plan` is that of the run, and None for one that was deleted."""
        limit = pages.size(request.page_size, 100)
        found = await self._artifacts.list(request.run_id, request.step)
        names = [f"{step}{_BETWEEN}{artifact.name}" for step, artifact, _ in found]
        start = 0
        if request.page_token:
            last = pages.last(request.page_token)
            if last not in names:
                raise InvalidFieldError("page_token", "must be a token of this list")
            start = names.index(last) + 1
        shown = [_shown(plan, *each) for each in found[start : start + limit]]
        count = pages.fitting(shown)
        end = start + count
        return pb.ListArtifactsResponse(
            artifacts=shown[:count],
            next_page_token=pages.token(names[end - 1]) if end < len(names) else "",
        )

    async def download(self, request: pb.DownloadArtifactRequest) -> AsyncIterator[pb.DownloadArtifactResponse]:
        found = {
            (step, artifact.name): files
            for step, artifact, files in await self._artifacts.list(request.run_id, request.step)
        }
        files = found.get((request.step, request.name))
        if files is None:
            raise ArtifactNotFoundError(request.run_id, request.step, request.name)
        path = _path(request.path, files)
        header = _header(request, path, files)
        data = await self._artifacts.download(request.run_id, request.step, request.name, path)
        yield pb.DownloadArtifactResponse(header=header)
        async for piece in data:
            for begin in range(0, len(piece), CHUNK):
                yield pb.DownloadArtifactResponse(data=piece[begin : begin + CHUNK])


def _shown(plan: Plan | None, step: str, artifact: Artifact, files: Sequence[Stored]) -> pb.StepArtifact:
    return pb.StepArtifact(
        step=step,
        step_title=plan.title(step) if plan is not None else "",
        artifact=run_messages.artifact(artifact),
        files=[pb.ArtifactFile(path=sendable(each.path), bytes=each.bytes) for each in files[:FILES]],
    )


def _path(asked: str, files: Sequence[Stored]) -> str:
    """The name on disk of a listed file; it need not be UTF-8."""
    if any(each.path == asked for each in files):
        return asked
    return next((each.path for each in files if sendable(each.path) == asked), asked)


def _header(request: pb.DownloadArtifactRequest, path: str, files: Sequence[Stored]) -> pb.ArtifactHeader:
    """Raises ArtifactNotFoundError."""
    chosen = [each for each in files if each.path == path] if path else files
    if path and not chosen:
        raise ArtifactNotFoundError(request.run_id, request.step, request.name, request.path)
    if len(chosen) != 1:
        return pb.ArtifactHeader(file_name=f"{request.name}.tar", tar=True)
    name = posixpath.basename(chosen[0].path) or request.name
    return pb.ArtifactHeader(file_name=sendable(name), bytes=chosen[0].bytes)
