"""Resource usage of a process tree, read from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from toband.ports import MeterReading
from toband.supervise.launch.process_meter import ProcessMeter

# Stands for a supervisor: what it is made of itself does not count, what it starts does.
SUPERVISOR = """
import subprocess, sys
subprocess.run([sys.executable, "-I", "-S", "-c", sys.argv[1]])
"""
GREEDY = """
import subprocess, sys, time
block = bytearray(64 << 20)
child = subprocess.Popen(["sleep", "600"])
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
with open("/dev/null", "wb") as null:
    null.write(block)
time.sleep(600)
"""


@pytest.fixture
def supervisor() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SUPERVISOR, GREEDY], start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def test_memory_processes_and_time_of_the_whole_tree(supervisor: int) -> None:
    meter = ProcessMeter(lambda: {"a": supervisor, "gone": 2**22 + 1})
    assert set(meter.live()) == {"a", "gone"}
    found: dict[str, MeterReading] = {}
    deadline = time.monotonic() + 30
    while (
        "a" not in found
        or found["a"].cpu_time < 0.3
        or found["a"].rss_bytes < 64 << 20
        # Where the interpreter alone takes that much time, its child comes later.
        or found["a"].processes < 2
    ):
        assert time.monotonic() < deadline, found
        found = dict(await meter.read(["a", "gone", "unknown"]))
    assert set(found) == {"a"}
    assert found["a"].processes == 2
    assert found["a"].rss_bytes < 200 << 20
    assert found["a"].read_bytes is not None


async def test_nothing_is_read_of_one_that_is_gone() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:  # noqa: ASYNC220 - it starts at once
        meter = ProcessMeter(lambda: {"a": process.pid})
        # It has no children: a supervisor that has not begun, or whose step is over.
        assert await meter.read(["a"]) == {}
        process.kill()
        process.wait()
    assert await meter.read(["a"]) == {}
