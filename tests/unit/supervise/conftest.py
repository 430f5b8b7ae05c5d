"""Attempt files on disk, written by the code that shims use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

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
    assert len(os.listdir("/proc/self/fd")) <= before
