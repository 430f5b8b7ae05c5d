"""A daemon, and callers with tokens of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from helpers.callers import Caller, calling
from helpers.daemon import Daemon, running_daemon
from toban.v1 import access_pb2

NewCaller = Callable[..., Caller]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running


@pytest.fixture(scope="module")
def new_caller(daemon: Daemon) -> Iterator[NewCaller]:
    """Creates a token, limited to `workflows` and `labels` if they are given, and returns its owner."""
    admin = Caller(daemon.channel)
    with ExitStack() as stack:

        def create(name: str, role: int, workflows: tuple[str, ...] = (), **labels: str) -> Caller:
            request = access_pb2.CreateTokenRequest(name=name, role=role)  # type: ignore[arg-type]
            if workflows or labels:
                request.narrowing.workflows.extend(workflows)
                request.narrowing.labels.update(labels)
            text = admin.access.CreateToken(request, timeout=60).text
            return stack.enter_context(calling(f"unix:{daemon.state_dir}/toban.sock", text))

        yield create
