"""Errors of the bench.

BenchError
    NotDurableError    the daemon does not sync data that it reports as stored
"""

from __future__ import annotations


class BenchError(Exception):
    """A measurement failed; the text says why."""


class NotDurableError(BenchError):
    """Times would be meaningless; the text says which calls are missing."""
