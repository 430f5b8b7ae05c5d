"""The limit of open descriptors: raised for the daemon, restored for its children."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, subprocess, sys
from toband.supervise.launch import descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
descriptor_limit.raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
descriptor_limit.restore_limit_of(child.pid)
print(*resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
child.communicate()
own = descriptor_limit.OwnDescriptors()
before, _ = own.open_and_most()
files = [open("/dev/null") for _ in range(100)]
number, most = own.open_and_most()
print(number - before, most)
"""
"""A process of its own: in that of the tests, threads of others may open and close some at any time."""


def test_the_daemon_may_have_more_than_its_steps_and_counts_what_is_open() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["128 128", "64 128", "100 128"]
