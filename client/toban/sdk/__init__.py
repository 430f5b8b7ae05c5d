"""The SDK for programs: `Client` (asyncio), `SyncClient` (the same, blocking), and their errors.

    from toban.sdk import SyncClient

    with SyncClient() as toban:
        run = toban.wait_run(toban.start_run("nightly-report").id)

The errors and their hierarchy are in `toban.sdk.errors`.
"""

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
    TobanError,
    Unreachable,
    Violation,
)
from toban.sdk.runs import TERMINAL
from toban.sdk.sync import SyncClient
from toban.sdk.workflows import DefinitionText

__all__ = [
    "TERMINAL",
    "Address",
    "Client",
    "Conflict",
    "DefinitionText",
    "InternalError",
    "InvalidArgument",
    "InvalidDefinition",
    "NotFound",
    "Refused",
    "ResourceExhausted",
    "SyncClient",
    "TobanError",
    "Unreachable",
    "Violation",
]
