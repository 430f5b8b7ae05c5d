"""A daemon on a socket of its own for every test that asks for one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.daemon.fake_daemon import FakeDaemon


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    """A directory with a short path: that of a socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tb-") as directory:
        yield Path(directory)


@pytest.fixture
def daemon(socket_dir: Path) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(socket_dir / "toban.sock")
    daemon.start()
    yield daemon
    daemon.close()
