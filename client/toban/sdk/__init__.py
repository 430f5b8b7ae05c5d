"""The SDK for programs: `Client` (asyncio), `SyncClient` (the same, blocking), runs, and their errors.

    from toban.sdk import SyncClient

    with SyncClient() as toban:
        run = toban.run("nightly-report").wait()
        print(run.state, run.error)

The errors and their hierarchy are in `toban.sdk.errors`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from toban.sdk.address import Address
from toban.sdk.client import Client
from toban.sdk.errors import (
    Conflict,
    InternalError,
    InvalidArgument,
    InvalidDefinition,
    NotFound,
    Refused,
    ResourceExhausted,
    RunFailed,
    TobanError,
    Unauthenticated,
    Unreachable,
    Violation,
)
from toban.sdk.runs import TERMINAL
from toban.sdk.sync import SyncClient
from toban.sdk.workflows import DefinitionSource, DefinitionText

if TYPE_CHECKING:
    from toban.sdk.log_line import LogLine
    from toban.sdk.run_facts import Artifact, Progress, Step
    from toban.sdk.run_handle import Run
    from toban.sdk.states import (
        ErrorClass,
        LogLevel,
        LogStream,
        ProcessState,
        RunState,
        SkipReason,
        StepState,
        Trigger,
        WaitingFor,
    )
    from toban.sdk.sync_run import SyncRun

__all__ = [
    "TERMINAL",
    "Address",
    "Artifact",
    "Client",
    "Conflict",
    "DefinitionSource",
    "DefinitionText",
    "ErrorClass",
    "InternalError",
    "InvalidArgument",
    "InvalidDefinition",
    "LogLevel",
    "LogLine",
    "LogStream",
    "NotFound",
    "ProcessState",
    "Progress",
    "Refused",
    "ResourceExhausted",
    "Run",
    "RunFailed",
    "RunState",
    "SkipReason",
    "Step",
    "StepState",
    "SyncClient",
    "SyncRun",
    "TobanError",
    "Trigger",
    "Unauthenticated",
    "Unreachable",
    "Violation",
    "WaitingFor",
]

# Loaded on first use: the command line needs none of them.
_MODULES = {
    "Artifact": "run_facts",
    "LogLine": "log_line",
    "Progress": "run_facts",
    "Run": "run_handle",
    "Step": "run_facts",
    "SyncRun": "sync_run",
}

if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name.startswith("_") or name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"toban.sdk.{_MODULES.get(name, 'states')}")
        globals()[name] = found = getattr(module, name)
        return found
