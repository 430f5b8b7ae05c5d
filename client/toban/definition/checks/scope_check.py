"""Checks the scope that a schedule or a trigger gives to its runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from toban.definition.expressions.template_names import suggestion
from toban.definition.model.workflow import FULL_SCOPE
from toban.definition.schema.field_check import FieldAt
from toban.definition.source.problem_collector import Reporter


def check_scope(found: FieldAt | None, values: Mapping[str, Any], known: Collection[str], report: Reporter) -> None:
    """Reports a scope that the workflow does not have. `known` are those that it has."""
    name = values.get("scope")
    if found is None or name is None or name == FULL_SCOPE or name in known:
        return
    hint = suggestion(name, known) or (f" (known: {', '.join(known)})" if known else ": there are no scopes to choose")
    report.at(found.value, found.path, f'unknown scope "{name}"{hint}')
