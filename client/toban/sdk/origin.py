"""The origin of a call: the step attempt in which this process runs, from its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toban.sdk.address import Address, parse
from toban.sdk.errors import InvalidArgument

METADATA: Final = "toban-origin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An attempt, identified by a token that only its processes have."""

    run_id: str
    token: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call; empty if the values cannot be sent as metadata."""
        text = f"{self.run_id}/{self.token}"
        return ((METADATA, text),) if text.isascii() and text.isprintable() else ()


def step_origin(address: Address, environ: Mapping[str, str] = os.environ) -> Origin | None:
    """The attempt in which this process runs; None outside a step, and for a daemon other than the step's."""
    run_id = environ.get("TOBAN_RUN_ID", "")
    token = environ.get("TOBAN_ATTEMPT_TOKEN", "")
    server = environ.get("TOBAN_SERVER", "")
    if not run_id or not token or not server:
        return None
    try:
        own = parse(server)
    except InvalidArgument:
        return None
    if own.target != address.target:
        return None
    return Origin(run_id=run_id, token=token)
