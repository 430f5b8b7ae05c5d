from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition import (
    DefinitionKind,
    JobType,
    OnLost,
    Overlap,
    Resources,
    Retention,
    Retry,
    StepSandbox,
    Workflow,
    json_schema,
    parse,
)
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.definition_schema import JobInput, WorkflowInput
from toban.definition.schema.field_check import written_names
from toban.definition.schema.step_schema import ActionInput, DefaultsInput, ListedStepInput, StepInput

Read = Callable[[str], Workflow]

FULL = """\
name: full
title: 全部
description: d
labels: {a: b}
enabled: false
params:
  p: {type: list, default: [1, {a: null}], description: x}
  q: {type: integer, default: 1, choices: [1, 2]}
env: {A: "1"}
env_file: [.env, {path: local.env, optional: true}]
timeout: 1h
concurrency: 3
max_active_runs: 2
overlap: replace
context_dir: /srv/context
scopes: {some: [one, two]}
priority: -5
retention: {age: 30d, runs: 20, bytes: 1GiB}
timezone: Europe/Berlin
blackout: ["0 2 * * sun/2h"]
schedule:
  - {cron: "@daily", timezone: Asia/Tokyo, params: {q: 1, p: [{a: 1}]}, gap: skip, fold: both}
  - {every: 90m, start: 2026-12-01T09:00:00+09:00, end: 2027-01-01T00:00Z, params: {q: 2}, jitter: 5m}
  - {at: 2026-12-01 09:00Z, params: {q: 2}, misfire: run_all, misfire_grace: 0}
  - {when: every weekday at 15:00, max_occurrences: 3, params: {q: 1}}
on: DATA_CHANGED
watch: [/srv/in, files]
steps:
  one: {run: "echo {{ params.q }}", args: [1, {a: [2.5, null]}], env: {B: x}, env_file: {path: one.env}, workspace: w}
  two:
    job_type: python
    target: a.b:c
    kwargs: {k: [true]}
    depends_on: [one]
    timeout: 5s
    idle_timeout: 4s
    kill_grace: 0.5
    success_codes: [3, 0]
    on_failure: continue
    on_lost: rerun
    user: nobody
    resources: {memory: 64MiB, cpu: 0.5, nice: 5}
    no_new_privileges: true
    sandbox: {network: none, read_only: [/srv/data], writable: [/srv/out], private_tmp: true}
    stdin: text
    python: /usr/bin/python3
    when: steps.one.result.ok
    for_each: {a: [1, {b: null}], c: params.p}
    max_parallel: 2
    outputs: [{name: out, path: "x/*.txt", type: text, optional: true}]
    max_retries: 2
    retry: {delay: 2s, backoff: 3, max_delay: 1m, jitter: 0, on: [RETRYABLE_TRANSIENT, 3]}
    error_classes: {3: FATAL}
    completion_check: {run: test -e done, timeout: 1s, idle_timeout: 2s, error_classes: {9: NON_RETRYABLE}}
    max_iterations: 4
    interval: 30s
    on_iterations_exhausted: continue
    stop_when_unchanged: done
  three: {job_type: cmd, target: dir, depends_on: [two]}
  four: {job_type: powershell, target: Get-Date, depends_on: [two], resources: {pids: 10}}
  five: {run: x, inputs: [{from: two, artifact: out, as: in}], depends_on: [two], on_failure: skip}
  six: {job_type: workflow, target: other, kwargs: {a: 1}, on_failure: retry, on_failure_exhausted: skip}
  seven: {job_type: approval, approvers: [alice], timeout: 1h}
  eight: {wait: {event: [A, b.c], condition: event.payload.ok}, timeout: 1h}
  nine: {wait: {for: 90s}}
  ten: {job_type: wait, wait: {until: "{{ params.q }}:30"}}
  eleven: {wait: {file: "{{ run.dir }}/x", settle: 5s}}
finally: {last: {run: x, on_failure: skip}, very-last: {run: x, depends_on: [last]}}
finally_timeout: 90s
on_failure: [{name: told, run: x}]
"""


def test_a_stored_workflow_comes_back_equal(workflow: Read) -> None:
    found = workflow(FULL)
    again = Workflow.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found
    assert list(again.steps) == list(found.steps)
    assert again.steps["two"].success_codes == {0, 3}
    assert again.steps["two"].resources == Resources(memory=2**26, cpu=0.5, nice=5)
    assert again.steps["two"].no_new_privileges
    assert again.steps["two"].sandbox == StepSandbox(
        network=False, read_only=("/srv/data",), writable=("/srv/out",), private_tmp=True
    )
    check = again.steps["two"].completion_check
    assert check is not None
    assert (check.no_new_privileges, check.sandbox) == (True, again.steps["two"].sandbox)
    assert again.retention == Retention(age=30 * 86400, runs=20, bytes=2**30)
    assert len(again.schedules) == 4


def test_what_was_stored_before_a_field_existed_has_its_default(workflow: Read) -> None:
    stored = workflow(FULL).to_dict()
    for name in ("priority", "retention"):
        del stored[name]
    for name in ("kind", "context_dir", "scopes", "schedules", "timezone", "blackout"):
        del stored[name]
    for name in ("triggers", "event_overlap", "watch", "env_files"):
        del stored[name]
    for step in stored["steps"]:
        for name in (
            "on_lost",
            "user",
            "resources",
            "no_new_privileges",
            "sandbox",
            "retry",
            "outputs",
            "when",
            "env_files",
        ):
            step.pop(name, None)
    found = Workflow.from_dict(json.loads(json.dumps(stored)))
    assert (found.priority, found.retention) == (0, None)
    assert (found.kind, found.context_dir, found.scopes) == (DefinitionKind.WORKFLOW, "", {})
    assert (found.schedules, found.timezone, found.blackout) == ((), "", ())
    assert (found.triggers, found.event_overlap, found.watch) == ((), Overlap.QUEUE, ())
    assert found.env_files == ()
    for step in found.steps.values():
        assert step.env_files == ()
        assert (step.no_new_privileges, step.sandbox) == (False, None)
        assert (step.on_lost, step.user, step.resources) == (OnLost.FAIL, "", None)
        assert (step.retry, step.outputs, step.when) == (Retry(), (), "")


def test_stored_workflows_and_plain_templates_need_nothing_heavy(workflow: Read) -> None:
    """The daemon starts, and renders most steps, without YAML, pydantic or the compiler."""
    program = f"""
import json, sys
from toban.definition import Scope, Workflow, bind_params, references, render
workflow = Workflow.from_dict(json.loads({json.dumps(workflow(FULL).to_dict())!r}))
params = bind_params(workflow, {{"q": "2"}})
step = workflow.steps["one"]
assert references(step) == {{}}
found = render(workflow, step, Scope(params=params, run={{}}, env={{}}, steps={{}}))
assert found.env["TOBAN_V1"] == "2"
heavy = {{"pydantic", "ruamel.yaml", "cel_expr_python.cel", "asyncio"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_simple_definition_needs_no_compiler() -> None:
    program = f"""
import sys
from toban.definition import parse
assert parse({FULL!r}).ok
assert "cel_expr_python.cel" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_the_schema_names_every_field() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    assert [entry["$ref"].rpartition("/")[2] for entry in schema["anyOf"]] == [
        "WorkflowInput",
        "JobsInput",
    ]
    assert schema["$defs"]["WorkflowInput"]["required"] == ["steps"]
    assert [choice["required"] for choice in schema["$defs"]["WorkflowInput"]["anyOf"]] == [["id"], ["name"]]
    older = {"is_enabled", "on_fail", "job_id", "eventTypes"}
    for model in DefinitionPart.__subclasses__() + DefaultsInput.__subclasses__() + [ListedStepInput, JobInput]:
        if model is ActionInput:
            continue  # a base of others, nothing that is written
        found = schema["$defs"][model.__name__]
        assert found["properties"].keys() - older == written_names(model).keys()
        assert found["additionalProperties"] is False
    assert schema["$defs"]["JobType"]["enum"] == [kind.value for kind in JobType]
    assert "null" not in json.dumps(schema)


def test_older_names_are_marked_in_the_schema() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["WorkflowInput"]["properties"]["is_enabled"]["deprecated"] is True
    assert definitions["TriggerInput"]["properties"]["eventTypes"]["deprecated"] is True
    for name in ("StepInput", "ListedStepInput"):
        assert {"on_fail", "job_id"} <= definitions[name]["properties"].keys()
    assert "stop" in definitions["StepInput"]["properties"]["on_failure"]["enum"]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        [
            *[None, True, 0, -1, 1.5, "", "x", "5m", "2MiB", "shell", "cmd", "powershell"],
            *["{{ params.p }}", "{{ 1 +", "a b", "a 'b {{ params.p }}", "retry", "workflow", "a"],
            *["approval", "params.p", "{{ item }}", "true", "output", "a/../b", 3],
            *["DATA_CHANGED", "RUN_FAILD", "event.payload.a", "event.type == 'a'", "/srv/*"],
            *["@daily", "2026-12-01T09:00Z", "tomorrow", "UTC", "0 2 * * sun/2h", "skip"],
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *[
                        "a",
                        "run",
                        "name",
                        "type",
                        "A",
                        "one",
                        "memory",
                        "nice",
                        "age",
                        "from",
                        "as",
                    ],
                    *["artifact", "path", "delay", "on", "5", "job_type", "target", "timeout"],
                    *["cron", "every", "at", "when", "timezone", "start", "params", "gap"],
                    *["event", "eventTypes", "condition", "priority"],
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
STEP = st.dictionaries(st.sampled_from([*StepInput.model_fields, "job_id", "on_fail", "x"]), VALUES)
DEFINITION = st.fixed_dictionaries(
    {},
    optional={name: VALUES for name in WorkflowInput.model_fields if name != "steps"}
    | {"steps": st.lists(STEP, max_size=3) | st.dictionaries(st.sampled_from("abc"), STEP) | VALUES},
)


@settings(max_examples=200)
@given(DEFINITION)
def test_any_shape_of_data_gives_a_workflow_or_problems(data: dict[str, Any]) -> None:
    parsed = parse(json.dumps(data))
    (document,) = parsed.documents
    if parsed.ok:
        assert (document.workflow is None) is bool(document.uses)
    else:
        assert document.workflow is None
    if document.workflow is not None:
        assert Workflow.from_dict(document.workflow.to_dict()) == document.workflow


@pytest.mark.parametrize("name", ["name", "steps"])
def test_required_fields_are_required(name: str) -> None:
    data = {"name": "a", "steps": {"a": {"run": "x"}}}
    assert parse(json.dumps(data)).ok
    del data[name]
    assert [problem.path for problem in parse(json.dumps(data)).errors] == [name]


JOB = st.dictionaries(st.sampled_from([*JobInput.model_fields, "is_enabled", "when", "x"]), VALUES)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["a", "b", "c d"]), JOB | VALUES, min_size=1), STEP)
def test_any_shape_of_jobs_gives_jobs_or_problems(jobs: dict[str, Any], step: Any) -> None:
    text = json.dumps({"jobs": jobs})
    step.pop("job_id", None)
    user = json.dumps({"name": "w", "steps": {"s": {**step, "job": "a"}}})
    parsed = parse(f"{text}\n---\n{user}")
    *found, workflow = parsed.documents
    assert len(found) == len(jobs)
    assert workflow.uses == {"a"}
    if parsed.ok:
        assert all(document.workflow is not None for document in found)
    for document in found:
        if document.workflow is not None:
            (again,) = parse(document.source).documents
            assert again.workflow == document.workflow
