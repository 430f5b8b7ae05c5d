"""Documents of jobs, and steps that use jobs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from toban.definition import (
    DefinitionKind,
    Document,
    ErrorClass,
    FailurePolicy,
    JobType,
    Problem,
    Workflow,
    parse,
)

Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = "name: w\ndescription: d\n"
JOBS = """\
# All of them.
jobs:
  # Puts it
  # there.
  upload:
    title: アップロード
    run: ./upload.sh {{ run.id }}  # with its number
    args: [a, b]
    env: {A: job, B: job}
    timeout: 5m
    retry: {delay: 2s, jitter: 0}
    error_classes: {3: FATAL}
    resources: {nice: 5, pids: 10}

  check:
    job_type: python
    target: m:f
    kwargs: {a: 1, b: 2}
    enabled: false
    labels: {team: x}
    description: looks at it
    on_failure: retry

    # of the check
    completion_check: {run: "test {{ iteration }} = 3"}
    max_iterations: 5
  # the last
"""


def documents(text: str, jobs: dict[str, str] | None = None) -> dict[str, Document]:
    parsed = parse(text, jobs=jobs)
    assert parsed.ok, "\n".join(map(str, parsed.errors))
    return {document.name: document for document in parsed.documents}


def using(step: str, jobs: dict[str, str] | None = None, top: str = "") -> Workflow:
    text = f"{HEAD}{top}steps:\n  s: {step}\n"
    given = jobs or {name: found.source for name, found in documents(JOBS).items()}
    found = documents(text, given)["w"].workflow
    assert found is not None
    return found


def test_each_job_is_a_workflow_of_one_step() -> None:
    upload, check = documents(JOBS).values()
    assert (upload.kind, upload.name, upload.uses) == (DefinitionKind.JOB, "upload", frozenset())
    found = upload.workflow
    assert found is not None
    assert (found.kind, found.name, found.title) == (DefinitionKind.JOB, "upload", "アップロード")
    assert (found.enabled, found.params, list(found.steps)) == (True, {}, ["upload"])
    step = found.steps["upload"]
    assert (step.id, step.job, step.job_type) == ("upload", "upload", JobType.SHELL)
    assert (step.timeout, step.error_classes) == (300, {3: ErrorClass.FATAL})
    other = check.workflow
    assert other is not None
    assert (other.title, other.enabled, other.labels) == ("check", False, {"team": "x"})
    assert (other.description, other.steps["check"].max_retries) == ("looks at it", 3)
    assert other.steps["check"].completion_check is not None
    assert Workflow.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_each_job_has_a_text_of_its_own_with_its_comments() -> None:
    upload, check = documents(JOBS).values()
    assert upload.source.startswith("jobs:\n  # Puts it\n  # there.\n  upload:\n    title: アップ")
    assert upload.source.endswith("resources: {nice: 5, pids: 10}\n")
    assert "# with its number" in upload.source
    assert "# of the check" in check.source
    for document in (upload, check):
        (again,) = parse(document.source).documents
        assert again.workflow == document.workflow
        assert again.source == document.source
        # A line of the text is that line of the file.
        lines = JOBS.splitlines()
        for number, line in enumerate(document.source.splitlines()[1:], start=document.line):
            assert lines[number] == line


@pytest.mark.parametrize(
    "text",
    [
        "jobs: {a: {run: x}, b: {run: y}}",
        '{"jobs": {"a": {"run": "x"}, "b": {"run": "y"}}}',
        "jobs:\n  a: &one\n    run: x\n  b:\n    <<: *one\n    run: y\n",
        "jobs:\n  a: {run: x}\n  b:\n    run: y\nversion: 1\n",
        "version: '1'\njobs:\n  ? a\n  : run: x\n  ? b\n  : run: y\n",
        "jobs:\n  a:\n    run: x\n  b:\n    run: |\n      y\n...\n",
        "jobs:\n  a:\n    run: x\n  b: {run: y}",
    ],
)
def test_every_way_to_write_jobs_gives_texts_that_mean_the_same(text: str) -> None:
    found = documents(text)
    assert list(found) == ["a", "b"]
    for name, document in found.items():
        (again,) = parse(document.source).documents
        assert (again.name, again.workflow) == (name, document.workflow)
        assert document.workflow is not None
        assert list(document.workflow.steps) == [name]


def test_own_fields_go_before_those_of_the_job_and_these_before_defaults() -> None:
    found = using(
        "{job: upload, env: {B: own, C: own}, args: [c], retry: {delay: 9s}, max_retries: 1, "
        "error_classes: {4: FATAL}, resources: {nice: 1}, name: Up}",
        top="defaults: {timeout: 1s, kill_grace: 1s, env: {A: default, D: default}, "
        "resources: {memory: 1GiB}, retry: {backoff: 5}, run: default}\n",
    ).steps["s"]
    assert (found.job, found.name, found.job_type) == ("upload", "Up", JobType.SHELL)
    assert (found.target, found.args) == ("./upload.sh {{ run.id }}", ("c",))
    assert found.env == {"A": "job", "B": "own", "C": "own", "D": "default"}
    assert (found.timeout, found.kill_grace) == (300, 1)
    assert (found.retry.delay, found.retry.jitter, found.retry.backoff) == (9, 0, 5)
    assert found.error_classes == {3: ErrorClass.FATAL, 4: ErrorClass.FATAL}
    assert found.resources is not None
    assert (found.resources.nice, found.resources.pids, found.resources.memory) == (1, 10, 2**30)


def test_what_runs_may_be_replaced() -> None:
    assert using("{job: upload, target: other}").steps["s"].job_type is JobType.SHELL
    other = using("{job: check, run: other}").steps["s"]
    assert (other.job_type, other.target, other.kwargs) == (JobType.SHELL, "other", {})
    merged = using("{job: check, kwargs: {b: 3}}").steps["s"]
    assert (merged.target, merged.kwargs) == ("m:f", {"a": 1, "b": 3})
    assert (merged.description, merged.name) == ("looks at it", "s")
    assert merged.on_failure is FailurePolicy.RETRY
    assert merged.completion_check is not None
    assert merged.completion_check.id == "s.check"


def test_the_jobs_of_a_file_serve_its_workflows_wherever_they_stand() -> None:
    text = f"{HEAD}steps: {{s: {{job: upload}}, t: {{job_id: check, depends_on: [s]}}}}\n---\n{JOBS}"
    found = documents(text)
    assert list(found) == ["w", "upload", "check"]
    assert found["w"].uses == {"upload", "check"}
    assert found["w"].workflow is not None
    assert found["w"].workflow.steps["t"].job == "check"
    # Those of the file go before others.
    other = documents(text, {"upload": "jobs: {upload: {run: stored}}"})["w"].workflow
    assert other is not None
    assert other.steps["s"].target.startswith("./upload.sh")


def test_steps_of_a_list_may_be_nothing_but_jobs() -> None:
    text = f"{HEAD}steps: [{{job_id: upload, on_fail: stop}}, {{job_id: check}}]\n---\n{JOBS}"
    found = documents(text)["w"].workflow
    assert found is not None
    assert [(step.id, step.job, step.depends_on) for step in found.steps.values()] == [
        ("upload", "upload", ()),
        ("check", "check", ("upload",)),
    ]


def test_the_same_job_twice_in_a_list_needs_a_name(error: Error) -> None:
    text = "jobs: {j: {run: x}}\n---\n"
    wrong = parse(f"{text}{HEAD}steps:\n- job: j\n- job: j\n- {{name: k, job: j}}\n").errors
    assert [problem.message for problem in wrong] == [
        'duplicate step "j": already defined on line 6: give this one a "name"'
    ]


def test_offline_nobody_knows_which_jobs_there_are() -> None:
    parsed = parse(f"{HEAD}defaults: {{run: x}}\nsteps: {{s: {{job: upload, kwargs: {{a: 1}}}}}}")
    assert parsed.ok
    (warning,) = parsed.warnings
    assert warning.message == 'job "upload" is not in these files; the daemon checks it'
    assert (warning.line, warning.path) == (4, "steps.s.job")
    (document,) = parsed.documents
    assert (document.name, document.workflow) == ("w", None)
    assert document.uses == {"upload"}


def test_what_a_job_may_have_is_no_mistake_while_it_is_unknown() -> None:
    step = (
        "job: j, on_failure_exhausted: skip, max_iterations: 3, job_type: exec, "
        "stdin: '{{ iteration }} {{ check.stdout }}', retry: {delay: 1s}"
    )
    assert parse(f"{HEAD}steps: {{s: {{{step}}}}}").ok
    # What it certainly has not, is.
    assert not parse(f"{HEAD}steps: {{s: {{job: j, max_parallel: 2, args: ['{{{{ item }}}}']}}}}").ok


@pytest.mark.parametrize(
    ("step", "jobs", "path", "message"),
    [
        ("{job: uplaod}", {"upload": ""}, ".job", 'unknown job "uplaod": did you mean "upload"?'),
        ("{job: zzz}", {}, ".job", 'unknown job "zzz"'),
        ("{job: a b}", {}, ".job", '"a b" is not a valid name'),
        ("{job: 5}", {}, ".job", "expected a string"),
        ("{job: j}", {"j": "jobs: {j: {rnu: x}}"}, ".job", 'job "j" is invalid: '),
        ("{job: j}", {"j": "jobs: {k: {run: x}}"}, ".job", "not found in its source"),
        ("{job: j}", {"j": "jobs: [: {"}, ".job", 'job "j" is invalid'),
        (
            "{job: j, job_type: shell}",
            {"j": "jobs: {j: {job_type: exec, target: 'a \"{{ run.id }}\"'}}"},
            *(".job", 'job "j" cannot be used here: target: the template is inside double'),
        ),
        (
            "{job: j, job_type: python}",
            {"j": "jobs: {j: {run: ./x.sh}}"},
            *(".job", 'cannot be used here: run: expected package.module:function, found "./x.sh"'),
        ),
        (
            "{job: j}",
            {"j": "jobs: {j: {job_type: workflow, target: w}}"},
            *(".job", '"w" would start itself endlessly'),
        ),
        (
            "{job: j, job_type: cmd}",
            {"j": "jobs: {j: {run: x, args: ['a&b']}}"},
            *(".job", 'job "j" cannot be used here: args[0]: the value contains &'),
        ),
        (
            "{job: j, max_iterations: 1}",
            {"j": "jobs: {j: {run: x, completion_check: {run: y}, max_iterations: 2}}"},
            *(".max_iterations", "at least 2, found 1"),
        ),
        ("{job: j, kwargs: {a: 1}}", {"j": "jobs: {j: {run: x}}"}, ".kwargs", "only python and"),
    ],
)
def test_steps_that_do_not_fit(step: str, jobs: dict[str, str], path: str, message: str) -> None:
    parsed = parse(f"{HEAD}steps:\n  s: {step}\n", jobs=jobs)
    (found,) = parsed.errors
    assert (found.line, found.path) == (4, f"steps.s{path}")
    assert message in found.message
    assert parsed.documents[0].workflow is None


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("jobs: []", "jobs", "expected a mapping of jobs by their ids, found a list"),
        ("jobs: {}", "jobs", "expected at least one job, found none"),
        ("jobs: {a b: {run: x}}", "jobs.a b", '"a b" is not a valid name'),
        ("jobs: {a: x}", "jobs.a", "expected a mapping such as {run: ./work.sh}"),
        ("jobs: {a: {}}", "jobs.a", 'cannot tell what runs: give "run", or "job_type"'),
        ("jobs: {a: {run: x}}\nextra: 1", "extra", 'unknown field "extra"'),
        ("jobs: {a: {run: x}}\nversion: 2", "version", 'expected 1, found "2"'),
        ("jobs: {a: {run: x}}\nname: b", "name", "a jobs document cannot contain a workflow"),
        *(
            (f"jobs: {{a: {{run: x, {name}: 1}}}}", f"jobs.a.{name}", f'unknown field "{name}"')
            for name in (
                "depends_on",
                "inputs",
                "outputs",
                "when",
                "for_each",
                "max_parallel",
                "job",
            )
        ),
        ("jobs: {a: {run: x, on: []}}", "jobs.a.on", "expected at least one trigger, found none"),
        ("jobs: {a: {run: x, watch: /srv}}", "jobs.a.watch", 'unknown field "watch"'),
        ("jobs: {a: {job_type: workflow, target: a}}", "jobs.a.target", "would start itself"),
        (
            "jobs: {a: {run: '{{ params.x }}'}}",
            "jobs.a.run",
            "a job may use run and event only, not params",
        ),
        (
            "jobs: {a: {run: '{{ env.X }}'}}",
            "jobs.a.run",
            "a job may use run and event only, not env",
        ),
        ("jobs: {a: {run: '{{ steps.b.stdout }}'}}", "jobs.a.run", "event only, not steps"),
        (
            "jobs: {a: {run: '{{ item }}'}}",
            "jobs.a.run",
            "a job may use run and event only, not item",
        ),
        ("jobs: {a: {run: '{{ iteration }}'}}", "jobs.a.run", "only in steps with a completion_"),
        ("jobs: {a: {run: x, timeout: x}}", "jobs.a.timeout", "expected a duration"),
        ("jobs: {a: {run: x}, b: {run: x}, a: {run: y}}", "", 'duplicate key "a"'),
    ],
)
def test_jobs_that_are_wrong(text: str, path: str, message: str) -> None:
    parsed = parse(text)
    (found,) = parsed.errors
    assert found.path == path
    assert message in found.message


def test_one_wrong_job_leaves_the_others_right() -> None:
    parsed = parse(
        f"jobs:\n  a: {{rnu: x, run: y}}\n  b: {{run: x}}\n---\n{HEAD}steps: {{s: {{job: b}}}}\n"
        f"---\n{HEAD.replace('w', 'v')}steps: {{s: {{job: a}}}}"
    )
    assert len(parsed.errors) == 1
    assert [(found.name, found.workflow is not None) for found in parsed.documents] == [
        ("a", False),
        ("b", True),
        ("w", True),
        ("v", False),
    ]


def test_names_are_shared_with_workflows() -> None:
    jobs = "jobs: {w: {run: x}}"
    parsed = parse(f"{jobs}\n---\n{HEAD}steps: {{s: {{run: x}}}}\n---\n{jobs}")
    assert [problem.message for problem in parsed.errors] == [
        'duplicate workflow "w": the file has a job of this name already',
        'duplicate job "w": the file has it already',
    ]


def test_many_jobs_are_read_in_time() -> None:
    text = "jobs:\n" + "".join(f"  job{index}: {{run: echo {index}}}\n" for index in range(300))
    assert len(documents(text)) == 300
