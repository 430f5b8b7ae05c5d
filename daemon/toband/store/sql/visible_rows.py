"""Visible rows: the condition that a row is of a workflow or a job that a call may see."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, false, or_, select

from toband.domain.identity import Narrowing, Visible
from toband.store.sql.keyset_paging import unindexed
from toband.store.sql.tables import workflow_labels, workflow_versions

# The characters of names. The hyphen is the last: in a class of characters it would make a range elsewhere.
_LETTERS: Final = string.ascii_letters + string.digits + "_-"
# Each is a query of its own in a union.
_FEW: Final = 16
_ANY: Final = "*"
_ONE: Final = "?"


def only_visible(
    query: Select[Any], connection: Connection, column: ColumnElement[Any], visible: Visible
) -> Select[Any]:
    """The rows of a query whose `column`, the name of a workflow or a job, is visible."""
    return query if visible is None else query.where(is_visible(connection, column, visible))


def few_names(connection: Connection, visible: Visible) -> Sequence[str] | None:
    """The visible names of all that ever was stored, so that each can be read along an index; None if they are many."""
    if visible is None:
        return None
    name = workflow_versions.c.workflow
    query = select(name).where(is_visible(connection, name, visible)).distinct().limit(_FEW + 1)
    names = connection.execute(query).scalars().all()
    return names if len(names) <= _FEW else None


def is_visible(connection: Connection, column: ColumnElement[Any], visible: Sequence[Narrowing]) -> ColumnElement[bool]:
    """Never chooses the index: other conditions and the order of the list do."""
    name, sqlite = unindexed(column), connection.dialect.name == "sqlite"
    conditions: list[ColumnElement[bool]] = []
    exact = sorted({each for narrowing in visible for each in narrowing.workflows if _is_name(each)})
    if exact:
        conditions.append(name.in_(exact))
    for pattern in dict.fromkeys(each for narrowing in visible for each in narrowing.workflows if not _is_name(each)):
        parts = _parts(pattern)
        if parts is not None:
            conditions.append(name.op("GLOB")(_glob(parts)) if sqlite else name.op("~")(_regex(parts)))
    conditions += [_labelled(column, narrowing) for narrowing in visible if narrowing.labels]
    return or_(*conditions) if conditions else false()


def _labelled(column: ColumnElement[Any], narrowing: Narrowing) -> ColumnElement[bool]:
    return and_(
        *(
            exists().where(labels.c.workflow == column, labels.c.label == label, labels.c.content == content)
            for number, (label, content) in enumerate(narrowing.labels)
            for labels in [workflow_labels.alias(f"visible_{number}")]
        )
    )


def _is_name(pattern: str) -> bool:
    return bool(pattern) and all(letter in _LETTERS for letter in pattern)


def _parts(pattern: str) -> list[str] | None:
    """`*`, `?` or the characters that may stand at a place; None if no name can match. As `fnmatchcase` reads it."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        letter, end = pattern[at], at
        if letter == "[":
            close = pattern.find("]", at + (3 if pattern[at + 1 : at + 2] == "!" else 2))
            end = close if close > 0 else at
        if letter in (_ANY, _ONE):
            parts.append(letter)
        else:
            allowed = "".join(each for each in _LETTERS if fnmatchcase(each, pattern[at : end + 1]))
            if not allowed:
                return None
            parts.append(allowed)
        at = end + 1
    return parts


def _glob(parts: Iterable[str]) -> str:
    return "".join(each if each in (_ANY, _ONE) or len(each) == 1 else f"[{each}]" for each in parts)


def _regex(parts: Iterable[str]) -> str:
    wild = {_ANY: ".*", _ONE: "."}
    inside = "".join(wild.get(each) or (each if len(each) == 1 else f"[{each}]") for each in parts)
    return f"^{inside}$"
