"""Failpoints: named points where a test makes a process fail."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from toband import failpoints


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_nothing_happens_where_nothing_is_armed() -> None:
    failpoints.hit("anything")
    failpoints.arm("other=ENOSPC")
    failpoints.hit("anything")


def test_an_errno_is_raised_at_every_hit_or_at_the_nth() -> None:
    failpoints.arm("write=ENOSPC, read=EIO@2")
    for _ in range(2):
        with pytest.raises(OSError, match="failpoint write") as caught:
            failpoints.hit("write")
        assert caught.value.errno == errno.ENOSPC
    failpoints.hit("read")
    with pytest.raises(OSError, match="failpoint read"):
        failpoints.hit("read")
    failpoints.hit("read")


@pytest.mark.parametrize("text", ["write", "write=", "write=explode", "a=kill@x"])
def test_text_that_does_not_parse_is_refused(text: str) -> None:
    failpoints.arm("write=EIO")
    with pytest.raises(ValueError, match=r"failpoint|invalid literal"):
        failpoints.arm(text)
    with pytest.raises(OSError, match="failpoint write"):
        failpoints.hit("write")


def test_kill_ends_the_process_at_once() -> None:
    program = "from toband import failpoints; failpoints.hit('a'); failpoints.hit('a'); print('on')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"TOBAN_FAILPOINTS": "a=kill@2", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")
