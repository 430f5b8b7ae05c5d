"""The limit of open descriptors: raised for the daemon, as it was for what it starts."""

from __future__ import annotations

import os
import subprocess
import sys

from toband.supervise.descriptors import OwnDescriptors

PROGRAM = """
import resource, subprocess, sys
from toband.supervise import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
descriptors.raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
descriptors.restore_limit_of(child.pid)
print(*resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
child.communicate()
files = [open("/dev/null") for _ in range(100)]
number, most = descriptors.OwnDescriptors().open_and_most()
print(number >= 100, most)
"""


def test_the_daemon_may_have_more_than_its_steps() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["128 128", "64 128", "True 128"]


def test_what_is_open_is_counted() -> None:
    before = OwnDescriptors().open_and_most()
    assert before is not None
    read, write = os.pipe()
    try:
        assert OwnDescriptors().open_and_most() == (before[0] + 2, before[1])
    finally:
        os.close(read)
        os.close(write)
