"""Titles of workflows and steps, beside the ids that commands take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from toban.cli.render.output import Column

_Item = TypeVar("_Item")


def label(name: str, title: str) -> str:
    """The title with the id, `データ取得 (fetch)`; the id alone if the title says no more."""
    return f"{title} ({name})" if differs(name, title) else name


def differs(name: str, title: str) -> bool:
    """Whether there is a title that is not the id of the step, of its instances or of its check."""
    return bool(title) and title != name.partition("[")[0].removesuffix(".check")


def title_column(
    items: Iterable[_Item], name: Callable[[_Item], str], title: Callable[[_Item], str]
) -> list[Column[_Item]]:
    """The column of titles, if any of the items has one."""
    if not any(differs(name(item), title(item)) for item in items):
        return []
    return [Column("TITLE", lambda item: title(item) if differs(name(item), title(item)) else "", folds=True)]
