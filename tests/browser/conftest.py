"""A browser before a gateway and a daemon with sample data. What a page may not do fails the test that opened it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser

from browser.sample_data import fill
from helpers.browser import AXE, CHROMIUM, Console, Site, chromium, opened_console
from helpers.callers import Caller
from helpers.daemon import running_daemon
from helpers.gateway import running_gateway
from toban.v1 import access_pb2, access_rule_pb2

ROLES = ("viewer", "operator", "editor", "admin")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer: while playwright is there, its event loop is the running one of every test in this worker."""
    if not CHROMIUM:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    if not AXE.is_file():
        pytest.skip("the packages of the console are not installed: run scripts/build-console")
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with running_daemon(directory / "s") as daemon:
        ids = fill(daemon, directory)
        admin = Caller(daemon.channel).access
        tokens = {
            role: admin.CreateToken(
                access_pb2.CreateTokenRequest(name=role, role=access_rule_pb2.Role.Value(f"ROLE_{role.upper()}")),
                timeout=60,
            ).text
            for role in ROLES
        }
        with running_gateway(daemon.socket) as gateway:
            yield Site(daemon=daemon, gateway=gateway, directory=directory, tokens=tokens, ids=ids)


@pytest.fixture
def console(browser: Browser, site: Site) -> Iterator[Callable[..., Console]]:
    """Opens the console in a browser profile of its own: `console("/runs", role="viewer")`; see helpers/browser.py."""
    with ExitStack() as stack:
        opened: list[Console] = []

        def open_console(path: str, *, role: str = "admin", **how: object) -> Console:
            token = site.tokens[role] if role else ""
            found = stack.enter_context(opened_console(browser, site.gateway.url, token, **how))  # type: ignore[arg-type]
            opened.append(found)
            found.open(path)
            return found

        yield open_console
        wrong = [each for console in opened for each in console.wrong]
        assert not wrong
