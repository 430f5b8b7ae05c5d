"""Attempt files on disk, written by the code that shims use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from toband import failpoints


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before
