"""The addresses that the daemon listens on."""

from __future__ import annotations

import os
import re
from typing import Any

from toband.config.value_checks import check_text, shown

SOCKET_PATH_MOST = 107
_PORT = re.compile("[0-9]{1,5}")


def check_listen(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise ValueError(f"found {shown(value)}, expected addresses such as unix:///path or 127.0.0.1:0")
    return tuple(_address(check_text(item).strip()) for item in items)


def _address(text: str) -> str:
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/"):
            raise ValueError(f"found {shown(text)}, expected an absolute path as in unix:///run/toban.sock")
        if "," in path:
            raise ValueError(
                f"the socket path {path} contains a comma, which separates addresses; choose another with `listen`"
            )
        if len(os.fsencode(path)) > SOCKET_PATH_MOST:
            raise ValueError(
                f"the socket path {path} is {len(os.fsencode(path))} bytes long, the system allows at most "
                f"{SOCKET_PATH_MOST}; choose a shorter one with `listen`"
            )
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"found {shown(text)}, expected unix:///path or 127.0.0.1:PORT")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        raise ValueError(f"refusing to listen on {text!r}: without TLS only 127.0.0.1, localhost or [::1] are allowed")
    return text
