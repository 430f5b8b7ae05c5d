from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import (
    FailurePolicy,
    JobType,
    OnLost,
    Overlap,
    ParamType,
    Problem,
    Resources,
    Retention,
    Workflow,
    parse,
)
from toban.definition.checks.document_check import MAX_STEPS
from toban.definition.model.step_model import EnvFile
from toban.definition.schema.unsupported_fields import (
    UNSUPPORTED_STEP_FIELDS,
    UNSUPPORTED_VALUES,
    UNSUPPORTED_WORKFLOW_FIELDS,
)

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = "name: a\ndescription: d\n"


@pytest.mark.parametrize(
    "text",
    [
        "name: a\ndescription: d\nlabels: {x: %s}\nsteps: {a: {run: x}}",
        "name: a\ndescription: d\ntitle: %s\nsteps: {a: {run: x}}",
        "jobs: {a: {run: x, description: %s}}",
    ],
)
def test_what_lists_tell_of_a_definition_is_small(errors: Errors, text: str) -> None:
    assert parse(text % ("x" * 60_000)).ok
    (found,) = errors(text % ("x" * 70_000))
    assert found.message.startswith("title, description and labels together must not exceed 64 KiB")


def test_every_field_of_the_format(workflow: Read) -> None:
    found = workflow(
        """\
name: nightly-report
title: 夜間レポート
version: 1
description: Collect and build
labels: {team: data, tier: 1}
enabled: false
params:
  day: {type: string, default: today, description: which day}
  n: {type: integer, required: true, choices: [1, 2]}
  rate: {type: number, default: 2}
  deep: {type: mapping}
env: {A: 1.10, B: yes, C: true}
timeout: 30m
concurrency: 2
max_active_runs: 3
overlap: allow
priority: 50
retention: {age: 7d}
defaults: {timeout: 1m, env: {X: 1, Y: 2}, on_failure: continue, resources: {memory: 1GiB, nice: 5}}
steps:
  fetch:
    run: ./fetch.sh
    name: Fetch it
    description: gets it
    args: [1, two, {three: 3}]
    env: {Y: own}
    workspace: work
    timeout: 250ms
    idle_timeout: 5m
    kill_grace: 0
    success_codes: [0, 3]
    on_failure: abort
    on_lost: rerun
    user: 1000
    resources: {nice: 10, cpu: 2, pids: 100}
  build:
    job_type: python
    target: reports.build:main
    kwargs: {a: {b: [1, null]}}
    depends_on: [fetch]
  last: {job_type: exec, target: /bin/true, depends_on: [fetch, build]}
"""
    )
    assert (found.name, found.title, found.version) == ("nightly-report", "夜間レポート", "1")
    assert found.labels == {"team": "data", "tier": "1"}
    assert found.enabled is False
    assert found.env == {"A": "1.10", "B": "yes", "C": "true"}
    assert (found.timeout, found.concurrency, found.max_active_runs) == (1800, 2, 3)
    assert found.overlap is Overlap.ALLOW
    assert (found.priority, found.retention) == (50, Retention(age=7 * 86400))
    assert found.params["n"].type is ParamType.INTEGER
    assert (found.params["n"].required, found.params["n"].choices) == (True, (1, 2))
    assert found.params["rate"].default == 2.0
    assert [param.nullable for param in found.params.values()] == [False, False, False, True]
    fetch, build, last = found.steps.values()
    assert (fetch.id, fetch.name, fetch.description) == ("fetch", "Fetch it", "gets it")
    assert (fetch.job_type, fetch.target) == (JobType.SHELL, "./fetch.sh")
    assert fetch.args == (1, "two", {"three": 3})
    assert fetch.env == {"X": "1", "Y": "own"}
    assert (fetch.workspace, fetch.timeout, fetch.kill_grace) == ("work", 0.25, 0)
    assert fetch.idle_timeout == 300
    assert fetch.success_codes == {0, 3}
    assert fetch.on_failure is FailurePolicy.ABORT
    assert (fetch.on_lost, fetch.user) == (OnLost.RERUN, "1000")
    assert fetch.resources == Resources(memory=2**30, cpu=2.0, pids=100, nice=10)
    assert build.resources == Resources(memory=2**30, nice=5)
    assert (build.name, build.timeout, build.kill_grace) == ("build", 60, 10)
    assert build.env == {"X": "1", "Y": "2"}
    assert build.on_failure is FailurePolicy.CONTINUE
    assert build.kwargs == {"a": {"b": [1, None]}}
    assert last.depends_on == ("fetch", "build")
    assert last.job_type is JobType.EXEC


def test_defaults_of_everything_left_out(workflow: Read) -> None:
    found = workflow("name: a\nsteps: {s: {run: x}}")
    assert (found.title, found.version, found.description) == ("a", "1", "")
    assert (found.enabled, found.timeout, found.concurrency) == (True, None, None)
    assert (found.max_active_runs, found.overlap) == (1, Overlap.SKIP)
    step = found.steps["s"]
    assert (step.timeout, step.kill_grace, step.success_codes) == (None, 10, frozenset({0}))
    assert (step.depends_on, step.workspace, step.on_failure) == ((), None, FailurePolicy.ABORT)
    assert (step.on_lost, step.user, step.resources) == (OnLost.FAIL, "", None)
    assert (found.priority, found.retention) == (0, None)


def test_a_list_is_a_sequence(workflow: Read) -> None:
    found = workflow(
        HEAD
        + """\
steps:
  - {name: one, run: x}
  - {name: two, run: x}
  - {name: three, run: x, depends_on: [one]}
  - {name: four, run: x, depends_on: []}
  - {name: five, run: x}
"""
    )
    depends = {step.id: step.depends_on for step in found.steps.values()}
    assert depends == {
        "one": (),
        "two": ("one",),
        "three": ("one",),
        "four": (),
        "five": ("four",),
    }


def test_old_names_are_normalised(workflow: Read) -> None:
    found = workflow(HEAD + "is_enabled: false\nsteps: [{name: s, run: x, on_fail: stop}]")
    assert found.enabled is False
    assert found.steps["s"].on_failure is FailurePolicy.ABORT


def test_what_runs_may_be_inherited(workflow: Read) -> None:
    found = workflow(
        HEAD
        + """\
defaults: {job_type: python, kwargs: {a: 1, b: 2}}
steps:
  one: {target: "m:f", kwargs: {b: 3}}
  two: {run: echo}
  three: {job_type: exec, target: echo}
"""
    )
    one, two, three = found.steps.values()
    assert (one.job_type, one.kwargs) == (JobType.PYTHON, {"a": 1, "b": 3})
    assert (two.job_type, two.target, two.kwargs) == (JobType.SHELL, "echo", {})
    assert (three.job_type, three.kwargs) == (JobType.EXEC, {})


FIVE_MISTAKES = """\
name: report
description: Five things are wrong here
params:
  day: {type: string, default: today}
steps:
  fetch:
    run: ./fetch.sh "{{ params.day }}"
    timeout: 5 minutes
  build:
    job_type: python
    target: reports.build:main
    kwargs: {day: "{{ params.dya }}"}
    depends_on: [fetch, biuld]
    on_failur: continue
"""


FIVE_PROBLEMS = """\
x.yaml:7:22: steps.fetch.run: the template is inside double quotes: \
it is quoted by itself, write {{ params.day }}
x.yaml:8:14: steps.fetch.timeout: expected a duration, found "5 minutes": \
write 250ms, 30s, 5m, 2h, 1d, 1h30m or a number of seconds
x.yaml:12:23: steps.build.kwargs.day: unknown parameter "dya": did you mean "day"?
x.yaml:13:25: steps.build.depends_on[1]: unknown step "biuld": did you mean "build"?
x.yaml:14:5: steps.build.on_failur: unknown field "on_failur": did you mean "on_failure"?
"""


def test_five_mistakes_are_five_problems_in_their_places(errors: Errors) -> None:
    found = errors(FIVE_MISTAKES)
    assert [str(problem) for problem in found] == FIVE_PROBLEMS.splitlines()


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_WORKFLOW_FIELDS))
def test_workflow_fields_of_later(name: str, error: Error) -> None:
    found = error(f"{HEAD}{name}: x\nsteps: {{a: {{run: x}}}}")
    assert (found.line, found.column, found.path) == (3, 1, name)
    assert "not supported yet" in found.message


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_STEP_FIELDS))
def test_step_fields_of_later(name: str, error: Error) -> None:
    found = error(f"{HEAD}steps:\n  a:\n    run: x\n    {name}: 1\n")
    assert (found.line, found.column, found.path) == (6, 5, f"steps.a.{name}")
    assert "not supported yet" in found.message


def test_a_step_of_a_later_kind_is_one_problem(error: Error) -> None:
    assert "not supported yet" in error(f"{HEAD}steps: {{a: {{worker: CODEX_CLI}}}}").message
    assert "not supported yet" in error("jobs: {a: {run: x, worker: CODEX_CLI}}").message


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in UNSUPPORTED_VALUES for value in UNSUPPORTED_VALUES[name]],
)
def test_values_of_later(name: str, value: str, error: Error) -> None:
    found = error(f"{HEAD}steps: {{a: {{target: x, {name}: {value}}}}}")
    assert f'{name} "{value}" is not supported yet' in found.message


@pytest.mark.parametrize("written", ["script: x", "command: x", "uses: x", "sleep: 3"])
def test_a_word_of_another_tool_for_what_runs_is_one_problem(written: str, error: Error) -> None:
    assert ": write " in error(f"{HEAD}\nsteps: {{a: {{{written}}}}}").message


@pytest.mark.parametrize(
    ("top", "path", "column", "message"),
    [
        ("titel: x", "titel", 1, 'unknown field "titel": did you mean "title"?'),
        ("zzz: x", "zzz", 1, 'unknown field "zzz"'),
        ("name2: x", "name2", 1, 'unknown field "name2": did you mean "name"?'),
        ("version: 2", "version", 10, 'expected 1, found "2"'),
        ("enabled: yes", "enabled", 10, 'expected true or false, found "yes"'),
        ("is_enabled: 1", "is_enabled", 13, "expected true or false, found the number 1"),
        ("title: 5", "title", 8, "expected a string, found the number 5: put it in quotes"),
        ("title: ''", "title", 8, "expected text, found an empty string"),
        ("labels: [a]", "labels", 9, "expected a mapping, found a list"),
        ("labels: {a: [1]}", "labels.a", 13, "expected a string, found a list"),
        ("timeout: -1", "timeout", 10, "a duration cannot be negative"),
        ("timeout: 0", "timeout", 10, "greater than zero"),
        ("timeout: {{}}", "timeout", 10, "must be in quotes"),
        ("timeout:", "timeout", 1, "the field has no value"),
        ("concurrency: 0", "concurrency", 14, "expected at least 1, found the number 0"),
        (
            "max_active_runs: 1.5",
            "max_active_runs",
            18,
            "expected an integer, found the number 1.5",
        ),
        (
            "overlap: skpi",
            "overlap",
            10,
            'expected skip, queue, replace or allow, found "skpi": did you mean "skip"?',
        ),
        (
            "env: {A: null}",
            "env.A",
            10,
            'expected a string, found null: write "" for an empty text',
        ),
        ("env: {1A: x}", "env.1A", 7, '"1A" is not a valid name of an environment variable'),
        ("env: {TOBAN_X: x}", "env.TOBAN_X", 7, "names starting with TOBAN_ belong to the daemon"),
        ("env: {A: [x]}", "env.A", 10, "expected a string, found a list"),
        ("params: [a]", "params", 9, "expected a mapping of parameters, found a list"),
        ("params: {a: string}", "params.a", 13, "expected a mapping such as {type: string}"),
        ("params: {a b: {}}", "params.a b", 10, '"a b" is not a valid name of a parameter'),
        ("params: {a: {type: text}}", "params.a.type", 20, "expected string, integer, number,"),
        ("params: {a: {defualt: 1}}", "params.a.defualt", 14, 'did you mean "default"?'),
        (
            "params: {a: {default: 1}}",
            "params.a.default",
            23,
            "expected a string, found the number 1",
        ),
        (
            "params: {a: {type: integer, default: 1.5}}",
            "params.a.default",
            38,
            "expected an integer, found the number 1.5",
        ),
        (
            "params: {a: {choices: [x, y], default: z}}",
            "params.a.default",
            40,
            'expected one of "x", "y", found "z"',
        ),
        ("params: {a: {choices: [x, 1]}}", "params.a.choices[1]", 27, "expected a string"),
        ("params: {a: {choices: []}}", "params.a.choices", 23, "expected at least one entry"),
        (
            "params: {a: {required: true, default: x}}",
            "params.a.default",
            30,
            "a required parameter cannot have a default",
        ),
        ("priority: 101", "priority", 11, "expected at most 100, found the number 101"),
        ("priority: -101", "priority", 11, "expected at least -100"),
        ("priority: high", "priority", 11, 'expected an integer, found "high"'),
        ("retention: 7d", "retention", 12, 'expected a mapping with age, runs, bytes, found "7d"'),
        ("retention: {}", "retention", 12, "expected at least one of age, runs, bytes, found none"),
        ("retention: {age: 0}", "retention.age", 18, "greater than zero"),
        ("retention: {runs: 0}", "retention.runs", 19, "expected at least 1"),
        ("retention: {bytes: 1GB}", "retention.bytes", 20, '"GB" is not a unit of size'),
        ("retention: {bytes: 0}", "retention.bytes", 20, "greater than zero"),
        ("retention: {days: 7}", "retention.days", 13, 'field "days": remove it (known: age, runs, bytes)'),
        ("defaults: {user: '{{ 1 }}'}", "defaults.user", 18, "a template cannot choose the user"),
        ("defaults: {resources: {nice: 20}}", "defaults.resources.nice", 30, "expected at most 19"),
        ("defaults: {name: x}", "defaults.name", 12, '"name" cannot be inherited'),
        ("defaults: {tiemout: x}", "defaults.tiemout", 12, 'did you mean "timeout"?'),
        ("defaults: {retry: x}", "defaults.retry", 19, "expected a mapping with delay, backoff,"),
        ("defaults: {worker: x}", "defaults.worker", 12, "not supported yet"),
        ("defaults: {job_id: x}", "defaults.job_id", 12, '"job_id" cannot be inherited'),
        ("defaults: {inputs: []}", "defaults.inputs", 12, '"inputs" cannot be inherited'),
        ("context_dir: ../x", "context_dir", 14, 'the path may not contain ".."'),
        ("context_dir: 'a/{{ run.id }}'", "context_dir", 14, "a template is not allowed here"),
        ("context_dir: /proc/self", "context_dir", 14, "/proc belongs to the system"),
        ("scopes: {s: [a, b]}", "scopes.s[1]", 17, 'unknown step "b"'),
        ("scopes: {s: []}", "scopes.s", 13, "expected at least one entry"),
        ("scopes: {a b: [a]}", "scopes.a b", 10, '"a b" is not a valid name'),
        ("scopes: [a]", "scopes", 9, "expected a mapping, found a list"),
        ("defaults: [x]", "defaults", 11, "expected a mapping of step fields"),
    ],
)
def test_wrong_workflow_fields(top: str, path: str, column: int, message: str, error: Error) -> None:
    found = error(f"{HEAD}{top}\nsteps: {{a: {{run: x}}}}")
    assert (found.line, found.column) == (3, column)
    assert message in found.message
    assert found.path in (path, "")


@pytest.mark.parametrize(
    ("step", "path", "column", "message"),
    [
        ("{}", "", 6, 'cannot tell what runs: give "run", "job", or "job_type" and "target"'),
        ("{target: x}", "", 6, "cannot tell what runs"),
        ("{job_type: exec}", "", 7, "the step has no target"),
        ("{job_type: shel, target: x}", ".job_type", 17, 'did you mean "shell"?'),
        ("{run: x, workspace: //sys/}", ".workspace", 26, "/sys belongs to the system"),
        ("{run: x, workspace: '/dev/{{ 1 }}'}", ".workspace", 26, "/dev belongs to the system"),
        ("{run: x, target: y}", ".target", 15, '"run" is short for job_type: shell and target'),
        ("{run: x, job_type: exec}", ".job_type", 15, '"run" is short for job_type: shell'),
        ("{run: [x]}", ".run", 12, "expected a string, found a list"),
        ("{run: ' '}", ".run", 12, "expected text, found an empty string"),
        ("text", "", 6, 'expected a mapping such as {run: ./work.sh}, found "text"'),
        ("{run: x, kwargs: {a: 1}}", ".kwargs", 15, "only python and workflow steps have kwargs"),
        ("{job_type: python, target: foo}", ".target", 33, "expected package.module:function"),
        ("{job_type: python, target: 'm:f()'}", ".target", 33, "expected package.module:function"),
        ("{job_type: python, target: 'm:{{ 1 }}'}", ".target", 33, "a template cannot choose"),
        ("{run: x, args: y}", ".args", 21, 'expected a list, found "y": write [y]'),
        ("{run: x, depends_on: b}", ".depends_on", 27, 'expected a list, found "b": write [b]'),
        ("{run: x, depends_on: [a]}", ".depends_on[0]", 28, 'step "a" depends on itself'),
        (
            "{run: x, depends_on: [5]}",
            ".depends_on[0]",
            28,
            "expected a string, found the number 5",
        ),
        ("{run: x, timeout: 1x}", ".timeout", 24, 'expected a duration, found "1x"'),
        ("{run: x, timeout: '{{ 1 }}'}", ".timeout", 24, "expected a duration"),
        ("{run: x, idle_timeout: 0}", ".idle_timeout", 29, "must be greater than zero"),
        ("{run: x, kill_grace: [1]}", ".kill_grace", 27, "expected a duration, found list"),
        ("{run: x, success_codes: 0}", ".success_codes", 30, "expected a list, found the number 0"),
        ("{run: x, success_codes: []}", ".success_codes", 30, "expected at least one entry"),
        ("{run: x, success_codes: [256]}", ".success_codes[0]", 31, "expected at most 255"),
        ("{run: x, on_failure: abrot}", ".on_failure", 27, 'did you mean "abort"?'),
        (
            "{run: x, on_failure: stop, on_fail: stop}",
            ".on_fail",
            33,
            '"on_failure" is given twice',
        ),
        ("{run: x, env: {A-B: 1}}", ".env.A-B", 21, '"A-B" is not a valid name'),
        ("{run: x, workspace: ''}", ".workspace", 26, "expected text, found an empty string"),
        ("{run: x, on_lost: repeat}", ".on_lost", 24, 'expected fail or rerun, found "repeat"'),
        ("{run: x, user: ''}", ".user", 21, "expected the name or the number of a user"),
        ("{run: x, user: 'a b'}", ".user", 21, "expected the name or the number of a user"),
        ("{run: x, user: -x}", ".user", 21, 'found "-x"'),
        ("{run: x, user: 010}", ".user", 21, 'found "010"'),
        ("{run: x, user: 4294967295}", ".user", 21, "expected the name or the number of a user"),
        ("{run: x, user: [a]}", ".user", 21, "expected a string, found a list"),
        ("{run: x, user: '{{ params.x }}'}", ".user", 21, "a template cannot choose the user"),
        ("{run: x, resources: 1GiB}", ".resources", 26, "expected a mapping with memory, cpu,"),
        ("{run: x, resources: {}}", ".resources", 26, "at least one of memory, cpu, pids, nice"),
        ("{run: x, resources: {memroy: 1}}", ".resources.memroy", 27, 'did you mean "memory"?'),
        ("{run: x, resources: {memory: 1MB}}", ".resources.memory", 35, '"MB" is not a unit'),
        ("{run: x, resources: {memory: 1.5}}", ".resources.memory", 35, "expected a size, found"),
        ("{run: x, resources: {memory: 512KiB}}", ".resources.memory", 35, "at least 1MiB"),
        ("{run: x, resources: {memory: }}", ".resources.memory", 27, "the field has no value"),
        ("{run: x, resources: {cpu: 0}}", ".resources.cpu", 32, "from 0.01 to 10,000, found 0"),
        ("{run: x, resources: {cpu: -1}}", ".resources.cpu", 32, "expected a number of cores"),
        ("{run: x, resources: {cpu: all}}", ".resources.cpu", 32, 'a number, found "all"'),
        ("{run: x, resources: {cpu: true}}", ".resources.cpu", 32, "a number, found true"),
        ("{run: x, resources: {pids: 0}}", ".resources.pids", 33, "expected at least 1"),
        ("{run: x, resources: {pids: 5000000}}", ".resources.pids", 33, "at most 4194304"),
        ("{run: x, resources: {nice: -21}}", ".resources.nice", 33, "expected at least -20"),
        ("{run: x, resources: {nice: 1.5}}", ".resources.nice", 33, "expected an integer"),
        ("{run: x, env_file: }", ".env_file", 15, "the field has no value"),
        ("{run: x, env_file: []}", ".env_file", 25, "expected at least one file: write a path, {path: PATH"),
        ("{run: x, env_file: ['']}", ".env_file", 25, "expected a path, found an empty string"),
        ("{run: x, env_file: '{{ params.x }}'}", ".env_file", 25, "a template is not allowed here"),
        ("{run: x, env_file: [5]}", ".env_file", 25, "expected a path, found the number 5"),
        ("{run: x, env_file: {optional: true}}", ".env_file", 25, "a file of env_file has no path"),
        ("{run: x, env_file: {path: a, optional: 1}}", ".env_file", 25, "expected optional to be true or false"),
        ("{run: x, env_file: {path: a, must: 1}}", ".env_file", 25, 'unknown field "must"'),
        ("{job_type: approval, env_file: a}", ".env_file", 27, "approval"),
        ("{run: x, kwarg: {}}", ".kwarg", 15, 'did you mean "kwargs"?'),
    ],
)
def test_wrong_step_fields(step: str, path: str, column: int, message: str, error: Error) -> None:
    found = error(f"{HEAD}steps:\n  a: {step}\n")
    assert (found.line, found.column, found.path) == (4, column, f"steps.a{path}")
    assert message in found.message


def test_ids_of_steps(errors: Errors) -> None:
    found = errors(
        f"{HEAD}steps:\n  - run: x\n  - {{id: a b, run: x}}\n  - {{name: c, run: x}}\n"
        f"  - {{name: c, run: x}}\n  - text\n  - {{id: {'x' * 65}, run: x}}\n  - {{name: 5, run: x}}"
    )
    assert [(problem.line, problem.column, problem.path) for problem in found] == [
        (4, 5, "steps[0]"),
        (5, 10, "steps[1].id"),
        (7, 12, "steps[3].name"),
        (8, 5, "steps[4]"),
        (9, 10, "steps[5].id"),
        (10, 12, "steps[6].name"),
    ]
    assert 'duplicate step "c": already defined on line 6' in found[2].message


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "é", "a" * 65, "a/b"])
def test_names_of_workflows(name: str, error: Error) -> None:
    found = error(f"name: '{name}'\nsteps: {{a: {{run: x}}}}")
    assert (found.line, found.column, found.path) == (1, 7, "name")


def test_a_workflow_needs_a_name_and_steps(errors: Errors) -> None:
    assert [problem.path for problem in errors("title: x")] == ["name", "steps"]
    (found,) = errors(f"{HEAD}steps: []")
    assert found.message == "expected at least one step, found none"
    (found,) = errors(f"{HEAD}steps: x")
    assert "expected a mapping or a list of steps" in found.message


def test_cycles_are_drawn(errors: Errors) -> None:
    found = errors(
        f"""{HEAD}steps:
  a: {{run: x, depends_on: [c]}}
  b: {{run: x, depends_on: [a]}}
  c: {{run: x, depends_on: [b]}}
  d: {{run: "x {{{{ steps.b.stdout }}}}", depends_on: [b]}}
  e: {{run: x, depends_on: [f]}}
  f: {{run: x, depends_on: [e]}}
"""
    )
    assert [(problem.line, problem.message) for problem in found] == [
        (4, "dependency cycle: a -> c -> b -> a"),
        (8, "dependency cycle: e -> f -> e"),
    ]
    assert (found[0].column, found[0].path) == (27, "steps.a.depends_on")


def test_a_wrong_dependency_is_reported_once_not_again_by_its_references(error: Error) -> None:
    text = "steps:\n  a: {run: x}\n  b: {run: '{{ steps.a.stdout }}', depends_on: [aa]}\n"
    assert error(HEAD + text).path == "steps.b.depends_on[0]"


def test_steps_are_bounded(error: Error) -> None:
    steps = "".join(f"- {{name: s{index}}}\n" for index in range(MAX_STEPS + 1))
    found = error(f"{HEAD}steps:\n{steps}")
    assert "found 10,001 steps: at most 10,000 are allowed" in found.message


def test_problems_are_bounded(errors: Errors) -> None:
    steps = "".join(f"  s{index}: {{run: x, bad: 1}}\n" for index in range(1200))
    found = errors(f"{HEAD}steps:\n{steps}")
    assert len(found) == 1001
    assert found[-1].message == "and 200 more problems in this document"


def test_warnings_are_not_errors() -> None:
    for head in ("name: a\n", f"name: a\ndescription: {'x' * 501}\n"):
        parsed = parse(head + "steps: {a: {run: x}}")
        assert parsed.ok
        (warning,) = parsed.warnings
        assert warning.path == "description"
        assert str(warning).startswith("<definition>:")
        assert ": warning: description: " in str(warning)
    assert parse(f"name: a\ndescription: {'x' * 500}\nsteps: {{a: {{run: x}}}}").problems == ()


def test_a_problem_of_inherited_fields_is_reported_once(errors: Errors) -> None:
    text = "defaults:\n  env: {A: '{{ params.x }}'}\nsteps: {a: {run: x}, b: {run: x, env: {B: 1}}}"
    (found,) = errors(HEAD + text)
    assert (found.line, found.column, found.path) == (4, 16, "defaults.env.A")


def test_files_of_the_environment_are_inherited(workflow: Read) -> None:
    found = workflow(
        f"{HEAD}env_file: .env\n"
        "defaults: {env_file: [a.env, {path: /b.env, optional: true}]}\n"
        "steps:\n"
        "  one: {run: x, completion_check: {run: y}, max_iterations: 2}\n"
        "  two: {run: x, env_file: {path: own.env, optional: false}}\n"
        "  three: {job_type: approval}\n"
    )
    inherited = (EnvFile(path="a.env"), EnvFile(path="/b.env", optional=True))
    assert found.env_files == (EnvFile(path=".env"),)
    assert found.steps["one"].env_files == inherited
    assert found.steps["one"].completion_check is not None
    assert found.steps["one"].completion_check.env_files == inherited
    assert found.steps["two"].env_files == (EnvFile(path="own.env"),)
    assert found.steps["three"].env_files == ()


@pytest.mark.parametrize("user", ["root", "www-data", "_apt", "jane.doe@example.com", "PC1$", "0"])
def test_users(user: str, workflow: Read) -> None:
    assert workflow(f"{HEAD}steps: {{a: {{run: x, user: {user}}}}}").steps["a"].user == user


def test_every_wrong_resource_is_reported(errors: Errors) -> None:
    found = errors(f"{HEAD}steps:\n  a: {{run: x, resources: {{memory: 1, cpu: 0, pids: 0, nice: 99}}}}\n")
    assert [problem.path.rpartition(".")[2] for problem in found] == [
        "memory",
        "cpu",
        "pids",
        "nice",
    ]
    assert [problem.column for problem in found] == [35, 43, 52, 61]


@pytest.mark.parametrize("workspace", ["/", "/dev/shm/x", "/proc/../srv", "/device", "proc", "/dev{{ run.number }}"])
def test_other_workspaces_are_fine(workspace: str) -> None:
    parsed = parse(f"{HEAD}steps: {{a: {{run: x, workspace: '{workspace}'}}}}")
    assert parsed.ok, parsed.problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}steps: {{a: {{run: x, instruction: y}}}}", 'unknown field "instruction": remove it'),
        (f"{HEAD}defaults: {{nam: y}}\nsteps: {{a: {{run: x}}}}", 'unknown field "nam": remove it'),
        (f"{HEAD}cwd: /x\nsteps: {{a: {{run: x}}}}", 'unknown field "cwd": write defaults: {workspace: …}'),
        (f"{HEAD}shell: bash\nsteps: {{a: {{run: x}}}}", 'unknown field "shell": write defaults: {shell: …}'),
        (f"{HEAD}steps: {{a: {{run: x, finally: true}}}}", 'unknown field "finally": write finally beside steps'),
        (f"{HEAD}steps: {{a: {{wait: {{for: 1s}}, tags: [b]}}}}", 'unknown field "tags": write labels beside steps'),
        (f"{HEAD}steps: {{a: {{run: x, notify: y}}}}", 'unknown field "notify": remove it'),
        (f"{HEAD}defaults: {{needs: [y]}}\nsteps: {{a: {{run: x}}}}", 'unknown field "needs": remove it'),
        (f"{HEAD}steps: {{a: {{job_type: approval, stdni: x}}}}", 'unknown field "stdni": remove it'),
        (f"{HEAD}steps: {{a: {{job_type: approval, cwd: x}}}}", 'unknown field "cwd": remove it'),
        ("stpes: 1\njobs: {a: {run: x}}", 'unknown field "stpes": remove it'),
    ],
)
def test_no_refused_field_is_suggested(text: str, message: str, error: Error) -> None:
    assert error(text).message.startswith(message)


def test_locks_of_workflows_defaults_and_steps(workflow: Read) -> None:
    found = workflow(
        HEAD
        + """
locks: [b, a]
defaults: {locks: [c]}
steps:
  one: {run: x}
  two: {run: x, locks: [d, c]}
  ask: {job_type: approval}
"""
    )
    assert found.locks == ("b", "a")
    assert [step.locks for step in found.steps.values()] == [("c",), ("d", "c"), ()]
    assert Workflow.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ("locks: db\nsteps: {a: {run: x}}", "locks", "expected a list"),
        ("locks: []\nsteps: {a: {run: x}}", "locks", "expected at least one entry"),
        ("locks: [a b]\nsteps: {a: {run: x}}", "locks[0]", '"a b" is not a valid name'),
        ("locks: [a, a]\nsteps: {a: {run: x}}", "locks", '"a" is listed twice: remove it'),
        ('locks: ["{{ run.id }}"]\nsteps: {a: {run: x}}', "locks[0]", "a template cannot name a lock"),
        ("steps: {a: {job_type: approval, locks: [a]}}", "steps.a.locks", '"locks" does not apply to an approval step'),
        (
            "locks: [b]\nsteps: {a: {run: x, locks: [a]}}",
            "steps.a.locks",
            (
                'takes lock "a" while the run holds "b", but locks are taken in alphabetical order: '
                'add "a" to the locks of the workflow'
            ),
        ),
    ],
)
def test_wrong_locks(error: Error, fields: str, path: str, message: str) -> None:
    found = error(f"{HEAD}{fields}")
    assert (found.path, message in found.message) == (path, True), found
