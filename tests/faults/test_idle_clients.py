"""Clients that take and give nothing, and a storm of events: another client's reads stay quick, and all is released.

The latency of GetRun is measured in the same daemon, right before and during each attack, by a client with an identity
of its own. The medians are compared, with a floor: what is judged is the daemon, not how busy the machine is.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator

import grpc
import pytest

from faults.bad_clients import IDLERS, STALLED_EACH
from faults.neighbours import Memory, bad_client, expect_cancelled
from faults.settings import LONG
from helpers.daemon import CALL_WITHIN, Daemon, running_daemon
from helpers.wait import wait_until
from toban.token_text import TokenText, new_token_text
from toban.v1 import run_pb2

MIB = 1024 * 1024
TIMES = 5.0
FLOOR = 0.25
"""Seconds that are always allowed: on a busy machine the quiet latency itself varies that much."""
SAMPLES = 200 if LONG else 30
EVERY = 0.02
HANDSHAKE, CLIENT, IDLE = 2.0, 3.0, 4.0
RELEASED_WITHIN = 60.0
GROWN_MOST = 60 * MIB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Reader:
    """Reads one run, again and again, with a token."""

    def __init__(self, daemon: Daemon, token: TokenText) -> None:
        self._daemon = daemon
        self._metadata = (("authorization", f"Bearer {token.text}"),)
        daemon.apply("{name: quiet, description: x, steps: [{name: only, run: 'true', when: 'false'}]}")
        self._run = daemon.run("quiet").id
        self.measured()  # the first one warms up
        self.quiet = self.measured()

    def read(self) -> float:
        began = time.monotonic()
        request = run_pb2.GetRunRequest(id=self._run)
        self._daemon.runs.GetRun(request, timeout=CALL_WITHIN, metadata=self._metadata)
        return time.monotonic() - began

    def measured(self) -> float:
        taken = []
        began = time.monotonic()
        for number in range(SAMPLES):
            taken.append(self.read())
            wait_until(lambda: time.monotonic() >= began + number * EVERY, "", CALL_WITHIN)  # noqa: B023
        return statistics.median(taken)

    def expect_quick(self, attack: str) -> None:
        attacked, allowed = self.measured(), max(TIMES * self.quiet, FLOOR)
        print(f"{attack}: quiet {self.quiet * 1000:.1f} ms, attacked {attacked * 1000:.1f} ms")
        assert attacked <= allowed, f"{attack}: {attacked:.3f} s, quiet {self.quiet:.4f} s"


@pytest.fixture(scope="module")
def token() -> TokenText:
    return new_token_text()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, token: TokenText) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("idle")
    config = directory / "toband.toml"
    config.write_text(f"""
[limits]
handshake_time = "{HANDSHAKE:g}s"
client_time = "{CLIENT:g}s"
connection_idle = "{IDLE:g}s"
keepalive = "5s"
[access.tokens.reader]
role = "viewer"
digest = "{token.digest}"
""")
    with running_daemon(directory / "s", "--config", str(config)) as running:
        yield running


@pytest.fixture(scope="module")
def reader(daemon: Daemon, token: TokenText) -> Reader:
    return Reader(daemon, token)


@pytest.fixture(autouse=True)
def released(daemon: Daemon, reader: Reader) -> Iterator[None]:
    """Each attack ends with the descriptors that it began with, and without much more memory."""
    reader.read()
    before, memory = descriptors(daemon), Memory(daemon)
    grown = memory.now()
    yield
    wait_until(lambda: descriptors(daemon) <= before + 3, "descriptors are not released", RELEASED_WITHIN)
    assert memory.now() - grown < GROWN_MOST


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def test_idle_connections(daemon: Daemon, reader: Reader) -> None:
    before = descriptors(daemon)
    with bad_client("idlers", daemon) as client:
        wait_until(lambda: descriptors(daemon) >= before + IDLERS, "they are not connected", CALL_WITHIN)
        reader.expect_quick("idle connections")
        # The daemon ends them by itself.
        wait_until(lambda: descriptors(daemon) <= before + 3, "idle connections stay", RELEASED_WITHIN)
        assert client.stop()["closed"] == IDLERS


def test_connections_that_stall(daemon: Daemon, reader: Reader) -> None:
    before = descriptors(daemon)
    with bad_client("half_open", daemon) as client:
        reader.expect_quick("stalled connections")
        # The daemon ends their calls, and then the connections.
        wait_until(lambda: descriptors(daemon) <= before + 3, "stalled connections stay", RELEASED_WITHIN)
        reader.expect_quick("stalled connections, later")
        seen = client.stop()
    assert {name: count for name, count in seen.items() if count != STALLED_EACH} == {}


def test_followers_that_never_read(daemon: Daemon, reader: Reader) -> None:
    daemon.apply("""\
name: loud
description: x
steps: [{name: only, run: "yes 01234567890123456789 | head -c 20000000; exec sleep 600", kill_grace: 1s}]
""")
    run_id = daemon.start_run("loud")
    daemon.wait_started(run_id, "only")
    with bad_client("silent_followers", daemon, run_id) as client:
        reader.expect_quick("followers")
        with pytest.raises(grpc.RpcError) as caught:
            list(daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run_id, follow=True), timeout=CALL_WITHIN))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "streams of this identity are open" in str(caught.value.details())
        client.stop()
    expect_cancelled(daemon, [run_id], "followers")


def test_a_storm_of_events(daemon: Daemon, reader: Reader) -> None:
    with bad_client("emitters", daemon) as client:
        reader.expect_quick("events")
        print(f"events: {dict(client.stop())}")
