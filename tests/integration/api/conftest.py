"""One daemon for all tests here; each uses workflows of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.daemon import Daemon, running_daemon


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("d") / "s") as running:
        yield running
