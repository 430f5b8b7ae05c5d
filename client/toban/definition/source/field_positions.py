"""Where a field stands in the text of a definition, for problems that are found after it was read."""

from __future__ import annotations

from collections.abc import Sequence

from toban.definition.source.yaml_source import Entry, Node, read_documents

_IDS = ("id", "name", "title", "job")


def field_positions(source: str, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Line and column, from 1, of each path such as `steps.build.user`: of the nearest field that is there.

    A step's field that is not its own is looked for in `defaults`.
    """
    documents, _ = read_documents(source)
    root = documents[0].root if documents else None
    return [(1, 1) if root is None else _position(root, path.split(".")) for path in paths]


def _position(root: Node, names: list[str]) -> tuple[int, int]:
    found, rest = _walk(root, names)
    if rest and names[0] != "defaults" and len(names) > 2:
        inherited, missing = _walk(root, ["defaults", *names[2:]])
        if not missing:
            found = inherited
    return found.line + 1, found.column + 1


def _walk(node: Node, names: list[str]) -> tuple[Node, list[str]]:
    """The last node that is there, and the names behind it."""
    at = node
    while names:
        step: Entry | Node | None = None
        if node.kind == "map":
            step = node.entries.get(names[0])
        elif node.kind == "seq":
            step = next((item for item in node.items if _is_called(item, names[0])), None)
        if step is None:
            break
        at, node = (step.key, step.value) if isinstance(step, Entry) else (step, step)
        names = names[1:]
    return at, names


def _is_called(item: Node, name: str) -> bool:
    return any(key in item.entries and item.entries[key].value.plain() == name for key in _IDS)
