"""Checks inputs and outputs: each artifact has one name, one path, and a step that produces it."""

from __future__ import annotations

from collections.abc import Mapping

from toban.definition.checks.step_layers import StepDraft
from toban.definition.expressions.template_names import step_suggestion, suggestion
from toban.definition.schema.field_check import FieldAt
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node


def check_outputs(draft: StepDraft, report: Reporter) -> None:
    """Names of outputs become directories, which some systems compare without case."""
    found = draft.fields.get("outputs")
    seen: dict[str, int] = {}
    for index, output in enumerate(draft.values.get("outputs", ())):
        name = output.get("name")
        if found is None or name is None:
            continue
        node, path = _entry(found, index, "name")
        first = seen.setdefault(name.casefold(), index)
        if first != index:
            line = _entry(found, first, "name")[0].line + 1
            report.at(node, path, f'duplicate output "{name}": already defined on line {line}')


def check_inputs(draft: StepDraft, steps: Mapping[str, StepDraft], titles: Mapping[str, str], report: Reporter) -> None:
    """Every input must be an output of a step that this one depends on; no two may share a path."""
    found = draft.fields.get("inputs")
    places: list[tuple[str, int]] = []
    for index, given in enumerate(draft.values.get("inputs", ())):
        if found is None or "from_" not in given or "artifact" not in given:
            continue
        _check_source(draft, found, index, steps, titles, report)
        place = given.get("as_", given["artifact"])
        node, path = _entry(found, index, "as" if "as_" in given else "artifact")
        for other, first in places:
            if _overlap(place.casefold(), other.casefold()):
                line = _entry(found, first, "from")[0].line + 1
                message = f'"{place}" is taken by the input on line {line}: give it another "as"'
                report.at(node, path, message)
                break
        places.append((place, index))


def _check_source(
    draft: StepDraft,
    found: FieldAt,
    index: int,
    steps: Mapping[str, StepDraft],
    titles: Mapping[str, str],
    report: Reporter,
) -> None:
    given = draft.values["inputs"][index]
    source, artifact = given["from_"], given["artifact"]
    node, path = _entry(found, index, "from")
    if source not in steps:
        report.at(node, path, f'unknown step "{source}"{step_suggestion(source, steps, titles)}')
        return
    if source == draft.id:
        report.at(node, path, f'step "{source}" cannot have its own output as an input')
        return
    if steps[source].is_finally and not draft.is_finally:
        return  # it cannot be in depends_on, which is reported there
    if source not in draft.depends_on and not (draft.is_finally and not steps[source].is_finally):
        message = f'step "{source}" is not in depends_on of {draft.id}: add it there'
        report.at(node, path, message)
    if "outputs" in steps[source].fields and "outputs" not in steps[source].values:
        return  # its outputs are not known
    outputs = steps[source].values.get("outputs", ())
    known = [output["name"] for output in outputs if "name" in output]
    if len(known) < len(outputs) and artifact not in known:
        return
    if artifact in known:
        return
    node, path = _entry(found, index, "artifact")
    hint = suggestion(artifact, known) or (f" (known: {', '.join(known)})" if known else " (it has no outputs)")
    report.at(node, path, f'unknown artifact "{artifact}" of step "{source}"{hint}')


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def _entry(found: FieldAt, index: int, name: str) -> tuple[Node, str]:
    """A field of one entry, or the entry itself if it lacks the field."""
    node, path = found.value.items[index], join(found.path, index)
    if name in node.entries:
        return node.entries[name].value, join(path, name)
    return node, path
