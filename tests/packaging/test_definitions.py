"""Every definition that is shown or shipped is valid, and the schema for editors agrees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from toban.definition import DefinitionKind, json_schema, parse
from toban.definition.schema.definition_schema import JobsInput, WorkflowInput
from toban.definition.schema.field_check import written_names
from toban.definition.schema.step_schema import StepInput
from toban.definition.source.yaml_source import read_documents

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("examples/integrations/*.yaml")])
FENCE = re.compile(r"^( *)```ya?ml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SCHEMA = Draft202012Validator(json_schema())


def blocks() -> Iterator[Any]:
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            where = f"{path.relative_to(ROOT)}:{line}"
            yield pytest.param(where, _outdent(match[2], len(match[1])), id=where)


def _outdent(text: str, indent: int) -> str:
    return "".join(line[indent:] for line in text.splitlines(keepends=True))


def complete(text: str) -> str:
    """A whole definition around a part of one; what its templates name is there."""
    (document,) = read_documents(text)[0]
    assert document.root is not None
    keys = set(document.root.entries)
    if {"name", "steps"} <= keys or "jobs" in keys:
        return text
    params = sorted(set(re.findall(r"params\.(\w+)", text)) - {"map", "filter"})
    steps = sorted(set(re.findall(r"steps\.(\w+)", text)))
    head = "name: part\ndescription: of a workflow\n"
    if keys <= written_names(WorkflowInput).keys() and not keys <= written_names(StepInput).keys():
        return head + text + ("" if "steps" in keys else "steps: {a: {run: x}}\n")
    declared = ", ".join(f"{name}: {{default: x}}" for name in params)
    before = "".join(f"  {name}: {{run: x}}\n" for name in steps)
    depends = f"    depends_on: [{', '.join(steps)}]\n" if "depends_on" not in keys else ""
    body = "".join(f"    {line}" for line in text.splitlines(keepends=True))
    return f"{head}params: {{{declared}}}\nsteps:\n{before}  part:\n{depends}{body}"


def agree(text: str) -> None:
    """The schema accepts what the parser accepts."""
    for document in read_documents(text)[0]:
        if document.root is None:
            continue
        problems = [error.message for error in SCHEMA.iter_errors(document.root.plain())]
        assert not problems


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize(("where", "text"), list(blocks()))
def test_every_definition_in_the_documents_holds(where: str, text: str) -> None:
    whole = text if "\n---\n" in text else complete(text)
    parsed = parse(whole, where)
    assert parsed.ok, "\n".join(map(str, parsed.errors))
    agree(whole)


def test_there_are_definitions_in_the_documents() -> None:
    assert len(list(blocks())) >= 10


def test_every_example_holds() -> None:
    sources = [(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in EXAMPLES]
    jobs = {
        document.name: document.source
        for file, text in sources
        for document in parse(text, file).documents
        if document.kind is DefinitionKind.JOB
    }
    for file, text in sources:
        parsed = parse(text, file, jobs)
        assert parsed.ok, "\n".join(map(str, parsed.errors))
        assert all(document.workflow is not None for document in parsed.documents)
        assert not parsed.warnings, "\n".join(map(str, parsed.warnings))
        agree(text)


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nsteps: {a: {run: x, on_fail: stop, job_id: j}}\nis_enabled: false",
        "name: a\nsteps: [{job_id: j, on_fail: stop}, {name: b, run: x}]",
        "name: a\nversion: 1\nenv: {A: 1, B: true}\nsteps: {a: {run: x, when: true, user: 5}}",
        "name: a\nsteps: {a: {run: x, for_each: {os: [1], v: '[2]'}, timeout: 1h30m, kill_grace: 5}}",
        "name: a\nsteps: {a: {run: x, error_classes: {3: FATAL}, retry: {on: [3], delay: 1s}}}",
        "jobs: {a: {run: x, is_enabled: true, on_fail: retry}}\nversion: '1'",
        "name: a\nretention: {bytes: 64KiB}\nsteps: {a: {run: x, resources: {memory: 1.5GiB}}}",
        "name: a\nschedule: '@daily'\ntimezone: UTC\nblackout: ['@daily/1h']\nsteps: {a: {run: x}}",
        "name: a\nschedule: {when: 明日の9時, jitter: 5, misfire: skip}\nsteps: {a: {run: x}}",
        "name: a\nschedule: ['0 3 * * *', {at: 2026-12-01 09:00:00.5+0900}]\nsteps: {a: {run: x}}",
        "jobs: {a: {run: x, schedule: {every: 1h, start: 2026-12-01T09:00Z}, timezone: UTC}}",
        "name: a\non: DATA_CHANGED\nwatch: /srv\nsteps: {a: {run: x}}",
        "name: a\non: [A, {event: B, priority: 5}]\nwatch: [/srv, b]\nsteps: {a: {run: x}}",
        "name: a\non: {eventTypes: [A, B], condition: true}\nsteps: {a: {run: x}}",
        "jobs: {a: {run: x, on: {event: A, condition: event.depth == 0}}}",
        "id: a\nname: 夜間\nsteps: [{name: 取得, run: x, step_order: 2}, {id: b, name: c, run: x, step_order: 1}]",
        "id: a\ntitle: 夜間\nsteps: {a: {run: x, id: a, title: 取得}}",
        "name: a\ntriggers: {eventTypes: [A], condition: true, priority: 3}\nsteps: {a: {run: x}}",
        "name: a\ntriggers: {event: A, schedule: {cron: '@daily', misfire: skip}}\nsteps: {a: {run: x}}",
        "jobs: {a: {id: a, run: x, triggers: {schedule: {interval: 60000, jitter: 5s}}}}",
    ],
)
def test_the_schema_knows_every_way_to_write_it(text: str) -> None:
    assert parse(text).ok
    agree(text)


@pytest.mark.parametrize(
    "text",
    [
        "name: a",
        "steps: {a: {run: x}}",
        "jobs: {}",
        "name: a\nsteps: {a: {rnu: x}}",
        "name: a\nsteps: [{run: x}]",
        "name: a\nsteps: {a: {run: x, timeout: 5 minutes}}",
        "name: a\nsteps: {a: {run: x, completion_check: {job_type: approval}}}",
        "name: a\nsteps: {a: {run: x, outputs: [{path: x}]}}",
        "name: a\nsteps: {a: {run: x, inputs: [{form: x, artifact: y}]}}",
        "name: a\nsteps: {a: {run: x, on_failure_exhausted: retry}}",
        "jobs: {a: {run: x, depends_on: [b]}}",
        "name: a\nschedule: []\nsteps: {a: {run: x}}",
        "name: a\nschedule: {jitter: 5m}\nsteps: {a: {run: x}}",
        "name: a\nschedule: {every: 5m, cron: '@daily'}\nsteps: {a: {run: x}}",
        "name: a\nschedule: {at: 2026-12-01T09:00:00}\nsteps: {a: {run: x}}",
        "name: a\nblackout: '@daily/1h'\nsteps: {a: {run: x}}",
        "name: a\non: []\nsteps: {a: {run: x}}",
        "name: a\non: a b\nsteps: {a: {run: x}}",
        "name: a\non: {condition: 'true'}\nsteps: {a: {run: x}}",
        "name: a\non: {event: []}\nsteps: {a: {run: x}}",
        "name: a\non: {event: A, eventTypes: [B]}\nsteps: {a: {run: x}}",
        "name: a\non: {event: A, priority: 101}\nsteps: {a: {run: x}}",
        "name: a\nwatch: ['/srv/*']\nsteps: {a: {run: x}}",
        "jobs: {a: {run: x, watch: /srv}}",
        "name: 夜間\nsteps: {a: {run: x}}",
        "id: 7\nname: a\nsteps: {a: {run: x}}",
        "name: a\nsteps: {a: {run: x, step_order: 1}}",
        "name: a\nsteps: [{name: a, run: x, step_order: '1'}]",
        "name: a\ntriggers: {priority: 3}\nsteps: {a: {run: x}}",
        "name: a\ntriggers: {schedule: {interval: 5m}}\nsteps: {a: {run: x}}",
        "name: a\ntriggers: {schedule: {interval: 60000, cron: '@daily'}}\nsteps: {a: {run: x}}",
        "name: a\nschedule: {interval: 60000}\nsteps: {a: {run: x}}",
    ],
)
def test_the_schema_refuses_what_has_the_wrong_shape(text: str) -> None:
    assert not parse(text).ok
    (document,) = read_documents(text)[0]
    assert document.root is not None
    assert not SCHEMA.is_valid(document.root.plain())


def test_the_schema_describes_its_fields_for_people() -> None:
    for model in (WorkflowInput, StepInput, JobsInput):
        for name, found in json_schema()["$defs"][model.__name__]["properties"].items():
            assert found.get("description") or name in (
                "params",
                "labels",
                "description",
                "defaults",
            )
