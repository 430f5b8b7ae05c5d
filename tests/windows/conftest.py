"""These need Windows: scripts/test-windows runs them with a Windows interpreter under wine."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

if sys.platform == "win32":
    from windows.machine import Daemon, running_daemon

    @pytest.fixture(scope="module")
    def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
        """For tests that leave it as it was. Its directory has a name that is not plain."""
        with running_daemon(tmp_path_factory.mktemp("shared") / "state 日本語") as started:
            yield started
