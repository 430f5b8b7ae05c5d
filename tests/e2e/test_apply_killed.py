"""The daemon dies around the commit of an ApplyDefinitions call: all of its definitions are stored, or none."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import grpc
import pytest

from helpers.daemon import running_daemon
from toban.v1 import job_pb2, workflow_pb2

CALLS = 20


def request(number: int) -> workflow_pb2.ApplyDefinitionsRequest:
    """A workflow, the job that it uses, and another workflow, each in another version per call."""
    sources = [
        f"name: user\ndescription: d\nsteps: {{only: {{job: tool, env: {{N: '{number}'}}}}}}\n",
        f"jobs:\n  tool: {{run: echo {number}}}\n",
        f"name: other\ndescription: d\nsteps: {{only: {{run: echo {number}}}}}\n",
    ]
    texts = [workflow_pb2.DefinitionText(definition=workflow_pb2.Definition(source=source)) for source in sources]
    return workflow_pb2.ApplyDefinitionsRequest(texts=texts, request_id=str(number))


@pytest.mark.parametrize("place", ["store.before_commit=kill@9", "store.after_commit=kill@9"])
def test_all_or_none(tmp_path: Path, place: str) -> None:
    with running_daemon(tmp_path / "s", environment={"TOBAN_FAILPOINTS": place}) as daemon:
        daemon.environment.pop("TOBAN_FAILPOINTS")
        answered = 0
        with contextlib.suppress(grpc.RpcError):
            for number in range(1, CALLS):
                daemon.workflows.ApplyDefinitions(request(number), timeout=20)
                answered = number
        assert daemon.wait() == -signal.SIGKILL
        daemon.start()
        names = [workflow_pb2.GetWorkflowRequest(name=name) for name in ("user", "other")]
        versions = set()
        for name in names:
            with contextlib.suppress(grpc.RpcError):
                versions.add(daemon.workflows.GetWorkflow(name, timeout=20).workflow.version)
        with contextlib.suppress(grpc.RpcError):
            versions.add(daemon.jobs.GetJob(job_pb2.GetJobRequest(name="tool"), timeout=20).job.version)
        # The start has commits of its own, and any may have broken off; what was answered is stored.
        assert answered
        assert versions in ({answered}, {answered + 1})
        again = daemon.workflows.ApplyDefinitions(request(answered + 1), timeout=20)
        assert [each.version for each in again.definitions] == [answered + 1] * 3
