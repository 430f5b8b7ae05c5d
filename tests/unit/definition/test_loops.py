"""Retries, what follows them, and completion checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import ErrorClass, FailurePolicy, JobType, Problem, Retry, Workflow, parse

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = "name: a\ndescription: d\n"
TRANSIENT, RATE_LIMIT = ErrorClass.RETRYABLE_TRANSIENT, ErrorClass.RETRYABLE_RATE_LIMIT


@pytest.mark.parametrize(
    ("step", "retries", "policy", "final"),
    [
        ("", 0, FailurePolicy.ABORT, FailurePolicy.ABORT),
        ("max_retries: 2", 2, FailurePolicy.ABORT, FailurePolicy.ABORT),
        ("on_failure: skip", 0, FailurePolicy.SKIP, FailurePolicy.SKIP),
        ("on_failure: retry", 3, FailurePolicy.RETRY, FailurePolicy.ABORT),
        ("on_failure: retry, max_retries: 0", 0, FailurePolicy.RETRY, FailurePolicy.ABORT),
        (
            "on_fail: retry, max_retries: 7, on_failure_exhausted: skip",
            *(7, FailurePolicy.RETRY, FailurePolicy.SKIP),
        ),
        (
            "on_failure: retry, on_failure_exhausted: stop",
            *(3, FailurePolicy.RETRY, FailurePolicy.ABORT),
        ),
        ("on_failure: continue, max_retries: 1", 1, FailurePolicy.CONTINUE, FailurePolicy.CONTINUE),
    ],
)
def test_policies(step: str, retries: int, policy: FailurePolicy, final: FailurePolicy, workflow: Read) -> None:
    found = workflow(f"{HEAD}steps: {{a: {{run: x, {step}}}}}").steps["a"]
    assert (found.max_retries, found.on_failure, found.final_policy) == (retries, policy, final)


def test_to_skip_a_step_of_a_list_is_to_go_on(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}defaults: {{on_failure: skip}}
steps:
  - {{name: one, run: x}}
  - {{name: two, run: x, on_failure: retry, on_failure_exhausted: skip}}
  - {{name: three, run: x, on_failure: abort}}
"""
    )
    assert [step.final_policy for step in found.steps.values()] == [
        FailurePolicy.CONTINUE,
        FailurePolicy.CONTINUE,
        FailurePolicy.ABORT,
    ]


def test_the_spacing_of_retries(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}defaults: {{max_retries: 1, retry: {{delay: 3s, jitter: 0}}}}
steps:
  a: {{run: x, retry: {{delay: 5, backoff: 1.5, max_delay: 1m, on: [3, RETRYABLE_RATE_LIMIT, 4]}}}}
  b: {{run: x}}
  c: {{run: x, retry: {{on: [3]}}}}
"""
    )
    assert found.steps["a"].retry == Retry(
        delay=5,
        backoff=1.5,
        max_delay=60,
        jitter=0,
        classes=frozenset({RATE_LIMIT}),
        codes=frozenset({3, 4}),
    )
    assert found.steps["b"].retry == Retry(delay=3, jitter=0)
    assert found.steps["b"].retry.classes == {TRANSIENT, RATE_LIMIT}
    assert found.steps["c"].retry.classes == frozenset()
    assert found.steps["c"].retry.codes == {3}


def test_classes_of_exit_codes_merge(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}defaults: {{error_classes: {{3: FATAL, 4: NON_RETRYABLE}}}}
steps: {{a: {{run: x, error_classes: {{4: RETRYABLE_RATE_LIMIT}}}}, b: {{run: x}}}}
"""
    )
    assert found.steps["a"].error_classes == {3: ErrorClass.FATAL, 4: RATE_LIMIT}
    assert found.steps["b"].error_classes == {3: ErrorClass.FATAL, 4: ErrorClass.NON_RETRYABLE}


@pytest.mark.parametrize(
    ("step", "path", "column", "message"),
    [
        ("max_retries: -1", ".max_retries", 28, "expected at least 0"),
        ("max_retries: 1001", ".max_retries", 28, "expected at most 1000"),
        ("max_retries: many", ".max_retries", 28, "expected an integer"),
        (
            "retry: 5s",
            ".retry",
            22,
            "expected a mapping with delay, backoff, max_delay, jitter, on",
        ),
        ("retry: {}", ".retry", 22, "expected at least one of delay, backoff"),
        ("retry: {dealy: 1s}", ".retry.dealy", 23, 'did you mean "delay"?'),
        ("retry: {delay: -1}", ".retry.delay", 30, "a duration cannot be negative"),
        ("retry: {backoff: 0.5}", ".retry.backoff", 32, "expected a number from 1 to 1000"),
        ("retry: {max_delay: 0}", ".retry.max_delay", 34, "greater than zero"),
        ("retry: {jitter: 2}", ".retry.jitter", 31, "expected a number from 0 to 1, found 2"),
        ("retry: {on: 3}", ".retry.on", 27, "expected a list"),
        ("retry: {on: []}", ".retry.on", 27, "expected at least one entry"),
        ("retry: {on: [256]}", ".retry.on[0]", 28, "or an exit code, found the number 256"),
        ("retry: {on: [true]}", ".retry.on[0]", 28, "or an exit code, found true"),
        ("retry: {on: [x]}", ".retry.on[0]", 28, "expected RETRYABLE_TRANSIENT or RETRYABLE_RATE"),
        ("retry: {on: [3, FATAL]}", ".retry.on[1]", 31, "FATAL is never retried"),
        ("on_failure: again", ".on_failure", 27, "expected abort, continue, skip or retry"),
        ("on_failure_exhausted: skip", ".on_failure_exhausted", 15, "belongs to on_failure: retry"),
        (
            "on_failure: retry, on_failure_exhausted: retry",
            *(".on_failure_exhausted", 56, "expected abort, continue or skip"),
        ),
        ("error_classes: {0: FATAL}", ".error_classes.0", 31, "an exit code from 1 to 255"),
        ("error_classes: {256: FATAL}", ".error_classes.256", 31, "an exit code from 1 to 255"),
        ("error_classes: {x: FATAL}", ".error_classes.x", 31, 'from 1 to 255, found "x"'),
        ("error_classes: {3: fatal}", ".error_classes.3", 34, "NON_RETRYABLE or FATAL"),
        ("max_iterations: 3", ".max_iterations", 15, "applies only to steps with completion_check"),
        (
            "on_iterations_exhausted: continue",
            *(".on_iterations_exhausted", 15, "applies only to steps with completion_check"),
        ),
        ("stop_when_unchanged: x", ".stop_when_unchanged", 15, "applies only to steps with completion_check"),
        ("interval: 5s", ".interval", 15, "applies only to steps with completion_check"),
        ("completion_check: {run: y}", ".completion_check", 15, "at least 2, found 1"),
        (
            "completion_check: {run: y}, max_iterations: 1",
            *(".max_iterations", 59, "needs max_iterations of at least 2, found 1"),
        ),
        (
            "completion_check: ./c.sh, max_iterations: 2",
            *(".completion_check", 33, "expected a mapping such as {run: ./check.sh}"),
        ),
        (
            "completion_check: {}, max_iterations: 2",
            *(".completion_check", 33, 'cannot tell what runs: give "run", or "job_type"'),
        ),
        (
            "completion_check: {run: y, job: z}, max_iterations: 2",
            *(".completion_check.job", 42, 'unknown field "job"'),
        ),
        (
            "completion_check: {worker: CLAUDE_CODE}, max_iterations: 2",
            *(".completion_check.worker", 34, "not supported yet"),
        ),
        (
            "completion_check: {job_type: approval}, max_iterations: 2",
            *(".completion_check.job_type", 44, "job_type approval is not one"),
        ),
        (
            "completion_check: {job_type: workflow, target: b}, max_iterations: 2",
            *(".completion_check.job_type", 44, "job_type workflow is not one"),
        ),
        (
            "completion_check: {run: y, kwargs: {a: 1}}, max_iterations: 2",
            *(".completion_check.kwargs", 42, "only python and workflow steps have kwargs"),
        ),
        (
            "completion_check: {run: y, timeout: 0}, max_iterations: 2",
            *(".completion_check.timeout", 51, "greater than zero"),
        ),
        (
            "completion_check: {run: y}, max_iterations: 2, on_iterations_exhausted: skip",
            *(".on_iterations_exhausted", 87, "expected abort or continue"),
        ),
        (
            "completion_check: {run: y}, max_iterations: 2, stop_when_unchanged: /etc",
            *(".stop_when_unchanged", 83, "expected a path relative to the workspace"),
        ),
        (
            "completion_check: {run: y}, max_iterations: 2, stop_when_unchanged: '{{ 1 }}'",
            *(".stop_when_unchanged", 83, "a template is not allowed here"),
        ),
    ],
)
def test_what_is_wrong(step: str, path: str, column: int, message: str, error: Error) -> None:
    found = error(f"{HEAD}steps:\n  a: {{run: x, {step}}}\n")
    assert (found.line, found.column, found.path) == (4, column, f"steps.a{path}")
    assert message in found.message


def test_spacing_without_retries_is_a_warning() -> None:
    text = f"{HEAD}steps: {{a: {{run: x, retry: {{delay: 1s}}}}}}"
    (warning,) = parse(text).warnings
    assert warning.message == "this has no effect without retries: add max_retries or on_failure: retry"
    assert parse(text.replace("retry:", "max_retries: 1, retry:")).problems == ()
    # What all steps inherit says nothing about one of them.
    assert parse(f"{HEAD}defaults: {{retry: {{delay: 1s}}}}\nsteps: {{a: {{run: x}}}}").problems == ()


def test_what_is_inherited_and_makes_no_sense_is_left_out(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}defaults:
  on_failure_exhausted: skip
  max_iterations: 5
  stop_when_unchanged: out
  max_parallel: 3
  python: python3
  approvers: [alice]
steps:
  a: {{run: x}}
  b: {{run: x, completion_check: {{run: y}}, on_failure: retry}}
"""
    )
    a, b = found.steps.values()
    assert (a.on_failure_exhausted, a.max_iterations) == (FailurePolicy.ABORT, 1)
    assert (a.stop_when_unchanged, a.max_parallel, a.python, a.approvers) == ("", None, "", ())
    assert (b.on_failure_exhausted, b.max_iterations) == (FailurePolicy.SKIP, 5)
    assert b.stop_when_unchanged == "out"


def test_a_check_works_where_its_step_works(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}steps:
  a:
    run: work {{{{ iteration }}}} {{{{ check.stdout }}}} {{{{ check.exit_code + 1 }}}}
    env: {{A: one, B: two, LAST: "{{{{ check.stderr }}}}"}}
    workspace: w
    user: nobody
    python: /usr/bin/python3
    kill_grace: 1s
    timeout: 2m
    on_lost: rerun
    resources: {{nice: 3}}
    success_codes: [0, 5]
    completion_check:
      job_type: python
      target: m:check
      kwargs: {{n: "{{{{ iteration }}}}"}}
      env: {{B: own}}
      stdin: text
      error_classes: {{4: FATAL}}
    max_iterations: 20
    on_iterations_exhausted: continue
    stop_when_unchanged: ./out/
"""
    ).steps["a"]
    check = found.completion_check
    assert check is not None
    assert (check.id, check.job_type, check.target) == ("a.check", JobType.PYTHON, "m:check")
    assert check.env == {"A": "one", "B": "own"}
    assert (check.workspace, check.user, check.python) == ("w", "nobody", "/usr/bin/python3")
    assert (check.timeout, check.kill_grace, check.on_lost) == (30, 1, found.on_lost)
    assert (check.resources, check.stdin) == (found.resources, "text")
    assert check.success_codes == {0}
    assert check.error_classes == {4: ErrorClass.FATAL}
    assert (found.max_iterations, found.on_iterations_exhausted) == (20, FailurePolicy.CONTINUE)
    assert (found.stop_when_unchanged, found.python) == ("out", "")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("", None),
        ("timeout: 10s, ", 2.5),
    ],
)
def test_a_check_has_a_quarter_of_the_time(times: str, expected: float | None, workflow: Read) -> None:
    text = f"{HEAD}steps: {{a: {{run: x, {times}completion_check: {{run: y}}, max_iterations: 2}}}}"
    check = workflow(text).steps["a"].completion_check
    assert check is not None
    assert check.timeout == expected
    own = workflow(text.replace("run: y", "run: y, timeout: 1m")).steps["a"].completion_check
    assert own is not None
    assert own.timeout == 60


@pytest.mark.parametrize("word", ["output", "stdout"])
def test_the_output_may_be_what_has_to_change(word: str, workflow: Read) -> None:
    found = workflow(
        f"{HEAD}steps: {{a: {{run: x, completion_check: {{run: y}}, max_iterations: 2, stop_when_unchanged: {word}}}}}"
    )
    assert found.steps["a"].stop_when_unchanged == "output"


def test_checks_may_be_inherited(workflow: Read) -> None:
    found = workflow(
        f"""{HEAD}defaults:
  completion_check: {{run: "test {{{{ iteration }}}} = {{{{ item }}}}"}}
  max_iterations: 3
steps:
  a: {{run: x, for_each: "[1]"}}
  b: {{job_type: approval}}
"""
    )
    assert found.steps["a"].completion_check is not None
    assert found.steps["b"].completion_check is None


def test_what_a_check_may_not_use(errors: Errors) -> None:
    found = errors(
        f"""{HEAD}steps:
  a:
    run: x
    workspace: "{{{{ check.stdout }}}}"
    completion_check:
      run: y {{{{ check.stdout }}}} {{{{ item }}}} {{{{ steps.a.stdout }}}} {{{{ check.result }}}}
    max_iterations: 2
  b:
    run: echo {{{{ check.result }}}}
    when: iteration > 1
    completion_check: {{run: y}}
    max_iterations: 2
"""
    )
    assert [(problem.line, problem.message.split(":")[0]) for problem in found] == [
        (6, "the check works in the same workspace, so check cannot choose it"),
        (8, "check is what the last completion check left"),
        (8, "item has a value only in steps with for_each"),
        (8, 'step "a" refers to itself'),
        (8, "check is what the last completion check left"),
        (11, 'unknown field "result" of check (known'),
        (12, "iteration has no value yet"),
    ]
