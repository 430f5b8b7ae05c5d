"""Writes a definition as YAML that a person reads: keys in their order, scripts as blocks."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


def yaml_text(document: Mapping[str, Any]) -> str:
    """The text of one document."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)

    def readable(value: object) -> object:
        match value:
            case dict():
                return {key: readable(item) for key, item in value.items()}
            case list():
                return [readable(item) for item in value]
            case str() if "\n" in value and value.strip() and "\t" not in value and value[0] > " ":
                return LiteralScalarString(value)
            case _:
                return value

    out = io.StringIO()
    yaml.dump(readable(dict(document)), out)
    return out.getvalue()
