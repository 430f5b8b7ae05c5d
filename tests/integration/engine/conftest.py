"""One daemon for all tests here; each uses workflows of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.daemon import Daemon, running_daemon


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Has a secret in its own environment, which no step may see."""
    surroundings = {"DATABASE_PASSWORD": "hunter2", "LD_BIND_NOW": "1", "LC_ALL": "C"}
    state_dir = tmp_path_factory.mktemp("d") / "s"
    with running_daemon(state_dir, environment=surroundings) as running:
        yield running
