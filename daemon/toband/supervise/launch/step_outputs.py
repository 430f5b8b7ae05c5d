"""The outputs of a step: the lines of its file $TOBAN_OUTPUT, and the result of its function."""

from __future__ import annotations

from typing import Any

from toband import stored_json


def parse_outputs(text: str) -> dict[str, str]:
    """`key=value` lines and `key<<WORD` … `WORD` blocks. Lines that are neither say nothing."""
    outputs: dict[str, str] = {}
    # Not splitlines: a form feed, or a separator of Unicode's, is part of a value.
    lines = iter([line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")])
    for line in lines:
        key, equals, value = line.partition("=")
        block, arrows, word = line.partition("<<")
        if arrows and (not equals or len(block) < len(key)):
            body = []
            for inner in lines:
                if inner == word:
                    break
                body.append(inner)
            outputs[block.strip()] = "\n".join(body)
        elif equals and key.strip():
            outputs[key.strip()] = value
    return outputs


def parse_result(text: str) -> Any:
    """The JSON that the function of a python step returned; None if it is none."""
    try:
        return stored_json.parse(text)
    except ValueError:
        return None
