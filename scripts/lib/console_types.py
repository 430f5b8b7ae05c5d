"""Makes the types of the web console from the gateway's OpenAPI document. Run by scripts/gen-console-types."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import console_build

from toban.gateway.further_paths import FURTHER
from toban.gateway.open_api import document
from toban.gateway.operations.operation_table import OPERATIONS

TYPES: Final = console_build.SOURCES / "src" / "api" / "schema.d.ts"


def main(words: Sequence[str]) -> int:
    made = _types()
    if list(words) != ["--check"]:
        TYPES.write_text(made, "utf-8")
        return 0
    if TYPES.read_text("utf-8") == made:
        return 0
    print("client/console/src/api/schema.d.ts is not that of the API: run scripts/gen-console-types", file=sys.stderr)
    return 1


def _types() -> str:
    """Without refusals, which the console handles all alike, and without conditional requests."""
    api: dict[str, Any] = document(OPERATIONS, FURTHER)
    for operation in (each for methods in api["paths"].values() for each in methods.values()):
        operation["responses"] = {
            status: {name: value for name, value in response.items() if name != "headers"}
            for status, response in operation["responses"].items()
            if status.startswith("2")
        }
        operation["parameters"] = [each for each in operation.get("parameters", ()) if each["name"] != "If-None-Match"]
    node = console_build.find_node(console_build.SOURCES / ".node", console_build.say)
    console_build.install(node)
    with tempfile.TemporaryDirectory() as directory:
        source, made = Path(directory, "openapi.json"), Path(directory, "schema.d.ts")
        source.write_text(json.dumps(api))
        console_build.run(node, ["npx", "--no-install", "openapi-typescript", str(source), "-o", str(made)])
        return made.read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
