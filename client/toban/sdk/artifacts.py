"""Calls of the RunService about the artifacts of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cached_property
from typing import Any

import grpc.aio

from toban.sdk.base import Calls, paged
from toban.sdk.connection import Metadata
from toban.v1 import run_pb2, run_pb2_grpc


class ArtifactCalls(Calls):
    """Lists and downloads artifacts."""

    @cached_property
    def _artifacts(self) -> run_pb2_grpc.RunServiceAsyncStub:
        return run_pb2_grpc.RunServiceStub(self._connection.channel)

    def list_artifacts(
        self, run_id: str, *, step: str = "", page_size: int = 0
    ) -> AsyncGenerator[run_pb2.StepArtifact, None]:
        """The artifacts of a run, or of one step and its instances. Raises NotFound."""

        async def fetch(token: str) -> tuple[list[run_pb2.StepArtifact], str]:
            answer = await self._connection.call(
                self._artifacts.ListArtifacts,
                run_pb2.ListArtifactsRequest(run_id=run_id, step=step, page_size=page_size, page_token=token),
            )
            return list(answer.artifacts), answer.next_page_token

        return paged(fetch)

    async def download_artifact(
        self, run_id: str, step: str, name: str, *, path: str = ""
    ) -> AsyncGenerator[run_pb2.DownloadArtifactResponse, None]:
        """First a message with the `header`, then messages with `data`: of one file, or of a tar archive of many.

        Raises NotFound, and Unreachable if the connection is lost: the data is then incomplete, and the download must
        be started again from the beginning.
        """
        request = run_pb2.DownloadArtifactRequest(run_id=run_id, step=step, name=name, path=path)

        def open_stream(metadata: Metadata) -> grpc.aio.UnaryStreamCall[Any, run_pb2.DownloadArtifactResponse]:
            return self._artifacts.DownloadArtifact(request, metadata=metadata)

        messages = self._connection.stream(open_stream, ended=lambda whole: whole, reconnect=0.0)
        async with aclosing(messages):
            async for message in messages:
                yield message
