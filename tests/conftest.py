"""Settings of all tests: Hypothesis, the order of work with several workers, event loops under wine, and signals."""

from __future__ import annotations

import asyncio
import os
import selectors
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from toband.store import SqlStore

# The time that an example takes depends on the load of the machine, so there is no deadline. CI judges a change, and so
# tries the same examples each time; other runs try new ones.
settings.register_profile(
    "toban",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toban")

_LONG_FILES = ("windows", "faults", "browser", "e2e", "bench", "packaging", "integration", "fuzz", "contract")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take whole files in this order: the longest first, so that all workers end at about the same time."""
    if hasattr(config, "workerinput"):
        order = {name: number for number, name in enumerate(_LONG_FILES)}
        tests = Path(__file__).parent
        items.sort(key=lambda item: order.get(item.path.relative_to(tests).parts[0], len(order)))


@pytest.fixture(scope="session")
def store_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database with all tables, to be copied. From then on all stores share their compiled statements."""
    from doubles.store import compiled_once, make_template

    path = tmp_path_factory.mktemp("template") / "toban.db"
    with compiled_once():
        make_template(path)
        yield path


@pytest.fixture
async def store(store_template: Path, tmp_path: Path) -> AsyncIterator[SqlStore]:
    """The real store, on SQLite."""
    from toband.store import SqlStore

    path = tmp_path / "toban.db"
    shutil.copy(store_template, path)
    store = SqlStore(f"sqlite:///{path.as_posix()}")
    await store.open()
    yield store
    await store.close()


if sys.platform == "win32":

    class OftenAwake(selectors.SelectSelector):
        """Looks at its sockets every second: under wine a thread that waits without a timeout sometimes never wakes."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            return super().select(1.0 if timeout is None else min(timeout, 1.0))

    class OftenAwakeLoops(asyncio.DefaultEventLoopPolicy):
        """Selector loops instead of the proactor loops of Windows."""

        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(OftenAwake())

    asyncio.set_event_loop_policy(OftenAwakeLoops())

# In the background of a shell the suite inherits an ignored SIGINT, and would pass it on to the programs it starts.
if sys.platform != "win32":
    for signum in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.default_int_handler if signum is signal.SIGINT else signal.SIG_DFL)
