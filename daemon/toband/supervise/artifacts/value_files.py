"""Implements `ports.Values`: results and outputs that are too large for the database, beside the attempt's log."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any

from toband import stored_json
from toband.domain.attempt_model import Attempt
from toband.supervise.files.run_files import RunFiles, private, sync_directory

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
            kept = stored_json.parse_object(data.decode(errors="surrogatepass"))
            result, outputs = kept["result"], kept["outputs"]
            if not isinstance(outputs, dict) or not all(isinstance(v, str) for v in outputs.values()):
                raise ValueError("outputs are texts")
        except (ValueError, KeyError):
            # Not EIO: that would be retried again and again, and this is permanent.
            raise OSError(errno.EBADMSG, "the stored values are damaged", path) from None
        return result, outputs
