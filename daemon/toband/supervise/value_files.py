"""Implements `ports.Values`: results and outputs that are too large for the database, beside the attempt's log."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any

from toband.domain.model import Attempt
from toband.supervise.files import RunFiles, private, sync_directory

NEW_SUFFIX = ".values.new"


class ValueFiles:
    def __init__(self, files: RunFiles) -> None:
        self._files = files

    def spill(self, attempt: Attempt, result: Any, outputs: Mapping[str, str]) -> int:
        path = self._files.values(attempt)
        data = json.dumps({"result": result, "outputs": dict(outputs)}, ensure_ascii=False).encode(
            errors="surrogatepass"
        )
        new = path.removesuffix(".values") + NEW_SUFFIX
        with open(new, "wb", opener=private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_directory(os.path.dirname(path))
        return len(data)

    def load(self, attempt: Attempt) -> tuple[Any, Mapping[str, str]]:
        path = self._files.values(attempt)
        with open(path, "rb") as file:
            data = file.read()
        try:
            kept = json.loads(data.decode(errors="surrogatepass"))
            return kept["result"], kept["outputs"]
        except (ValueError, KeyError, TypeError):
            raise OSError(errno.EIO, "what was kept is damaged", path) from None
