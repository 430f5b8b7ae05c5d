"""Code shared by the calls of all services."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

from toban.sdk.connection import Connection

_Item = TypeVar("_Item")


class Calls:
    """The calls of one service over one connection."""

    _connection: Connection


def new_request_id(given: str | None) -> str:
    """The request id, which makes a call safe to repeat."""
    return given or os.urandom(16).hex()


async def paged(
    fetch: Callable[[str], Awaitable[tuple[Iterable[_Item], str]]],
) -> AsyncGenerator[_Item, None]:
    """Every item of every page. `fetch` takes a page token and returns the page's items and the next token."""
    token = ""
    while True:
        items, token = await fetch(token)
        for item in items:
            yield item
        if not token:
            return
