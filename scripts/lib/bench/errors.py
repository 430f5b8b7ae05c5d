"""Why there is no result.

BenchError
    NotDurableError    the daemon does not make durable what it says it does
"""

from __future__ import annotations


class BenchError(Exception):
    """Something could not be measured; the text says why."""


class NotDurableError(BenchError):
    """Times would mean nothing; the text says which calls are missing."""
