"""Attempt files on disk, written by the code that shims use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from helpers.wait import wait_until
from toband import failpoints


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    if sys.platform == "win32":
        yield  # those that there are, are wine's
        return
    before = len(os.listdir("/proc/self/fd"))
    yield
    # Threads that other tests have left may open some for a moment; one that is left stays.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, "a descriptor was left open")
