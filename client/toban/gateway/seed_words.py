"""The words that other schedulers' APIs have for our states and triggers: the only table of them.

`docs/http.md` shows it. The surface below `/projects` speaks the words of PROJECT_STATUS and PROJECT_TRIGGER; those of
WORKFLOW_STATUS and PROCESS_STATUS are for people who port a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROJECT_STATUS: Final[Mapping[str, str]] = {
    "pending": "pending",
    "running": "running",
    "succeeded": "completed",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
}
"""By the word of RunState."""

WORKFLOW_STATUS: Final[Mapping[str, str]] = {
    "pending": "PENDING",
    "running": "RUNNING",
    "succeeded": "SUCCESS",
    "failed": "FAILED",
    "timed_out": "FAILED",
    "cancelled": "STOPPED",
}
"""By the word of RunState."""

PROCESS_STATUS: Final[Mapping[str, str]] = {
    "starting": "RUNNING",
    "running": "RUNNING",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "timed_out": "TIMED_OUT",
    "cancelled": "FAILED",
    "lost": "FAILED",
}
"""By the word of ProcessState."""

PROJECT_TRIGGER: Final[Mapping[str, str]] = {
    "api": "api",
    "manual": "manual",
    "retry": "manual",
    "parent": "auto",
    "schedule": "auto",
    "event": "auto",
    "backfill": "auto",
}
"""By the word of Trigger."""
