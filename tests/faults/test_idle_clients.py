"""Clients that take and give nothing, and a storm of events: another client's reads stay quick, and all is released.

During each attack the latency of GetRun is compared with that of a second daemon, which is left alone: by turns, so
that both meet the same machine. On a busy one a daemon at work waits longer for a processor than an idle one, so that
a comparison is repeated: a limit that is missing makes all of them fail.
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
FLOOR = 0.02
"""Seconds that are always allowed: some turns of other processes."""
COMPARISONS = 5
SAMPLES = 200 if LONG else 30
EVERY = 0.02
HANDSHAKE, CLIENT, IDLE = 1.5, 1.5, 3.0
RELEASED_WITHIN = 60.0
GROWN_MOST = 60 * MIB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Reader:
    """Reads one run, again and again, with a token; and one of the daemon that is left alone."""

    def __init__(self, daemon: Daemon, alone: Daemon, token: TokenText) -> None:
        self._metadata = (("authorization", f"Bearer {token.text}"),)
        self._runs = {}
        for each in (daemon, alone):
            each.apply("{name: quiet, description: x, steps: [{name: only, run: 'true', when: 'false'}]}")
            self._runs[each] = each.run("quiet").id
        self._daemon, self._alone = daemon, alone
        self.measured()  # the first one warms up

    def read(self, daemon: Daemon) -> float:
        began = time.monotonic()
        request = run_pb2.GetRunRequest(id=self._runs[daemon])
        daemon.runs.GetRun(request, timeout=CALL_WITHIN, metadata=self._metadata)
        return time.monotonic() - began

    def measured(self) -> tuple[float, float]:
        """The medians of the attacked daemon and of the other one."""
        attacked, alone = [], []
        began = time.monotonic()
        for number in range(SAMPLES):
            attacked.append(self.read(self._daemon))
            alone.append(self.read(self._alone))
            wait_until(lambda: time.monotonic() >= began + number * EVERY, "", CALL_WITHIN)  # noqa: B023
        return statistics.median(attacked), statistics.median(alone)

    def expect_quick(self, attack: str) -> None:
        compared = []
        for _ in range(COMPARISONS):
            attacked, alone = self.measured()
            compared.append(f"{attack}: attacked {attacked * 1000:.1f} ms, left alone {alone * 1000:.1f} ms")
            print(compared[-1])
            if attacked <= max(TIMES * alone, FLOOR):
                return
        raise AssertionError("\n".join(compared))


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
def reader(daemon: Daemon, token: TokenText, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with running_daemon(tmp_path_factory.mktemp("alone") / "s", *daemon.arguments) as alone:
        yield Reader(daemon, alone, token)


@pytest.fixture(autouse=True)
def released(daemon: Daemon, reader: Reader) -> Iterator[None]:
    """Each attack ends with the descriptors that it began with, and without much more memory."""
    reader.read(daemon)
    before, memory = descriptors(daemon), Memory(daemon)
    grown = memory.now()
    yield
    wait_until(lambda: descriptors(daemon) <= before + 3, "descriptors are not released", RELEASED_WITHIN)
    # What the streams used is given back to the system some time after they ended.
    wait_until(lambda: memory.now() - grown < GROWN_MOST, "memory is not released", RELEASED_WITHIN)


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
    with bad_client("half_open", daemon) as client:
        reader.expect_quick("stalled connections")
        seen = client.stop()
    print(f"stalled connections: {seen['again']} again")
    # The daemon ends their calls, and then the connections.
    closed = {name: count for name, count in seen.items() if name != "again"}
    assert {name: count for name, count in closed.items() if count != STALLED_EACH} == {}
    assert closed


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
