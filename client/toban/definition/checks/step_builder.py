"""Builds the model's step from a draft without errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toban.definition.checks.loop_check import retries_of
from toban.definition.checks.step_layers import StepDraft
from toban.definition.expressions.templates import parse_template
from toban.definition.model.step_model import (
    DEFAULT_KILL_GRACE,
    RETRYABLE,
    ErrorClass,
    FailurePolicy,
    Input,
    JobType,
    OnLost,
    Output,
    Resources,
    Retry,
    Step,
    StepSandbox,
)

CHECK_SUFFIX = ".check"
HANDLERS: Mapping[str, tuple[str, ...]] = {
    "finally": (),
    "on_success": ("SUCCEEDED",),
    "on_failure": ("FAILED", "TIMED_OUT"),
    "on_cancel": ("CANCELLED",),
}
"""The fields of a workflow that have finally steps, and the states of the run in which these run; empty: all."""
_CHECK_SHARE = 4  # a check gets a quarter of the step's timeout


def build_step(draft: StepDraft, *, listed: bool = False) -> Step:
    """The step; `listed`: it is in a sequence, where skipping a failed step means to continue."""
    values = draft.values
    step = Step(
        **_action(draft),
        id=draft.id,
        name=draft.title or draft.id,
        description=values.get("description", ""),
        job=draft.job,
        env_files=values.get("env_file", ()),
        python=values.get("python", ""),
        workspace=values.get("workspace"),
        depends_on=tuple(dict.fromkeys(draft.depends_on)),
        when=_condition(draft),
        for_each=values.get("for_each"),
        max_parallel=values.get("max_parallel"),
        inputs=tuple(_input(given) for given in values.get("inputs", ())),
        outputs=tuple(Output(**given) for given in values.get("outputs", ())),
        timeout=values.get("timeout"),
        kill_grace=values.get("kill_grace", DEFAULT_KILL_GRACE),
        max_retries=retries_of(draft),
        retry=_retry(values.get("retry", {})),
        on_failure=_policy(draft, "on_failure", listed),
        on_failure_exhausted=_policy(draft, "on_failure_exhausted", listed),
        max_iterations=values.get("max_iterations", 1),
        interval=values.get("interval", 0.0),
        on_iterations_exhausted=values.get("on_iterations_exhausted", FailurePolicy.ABORT),
        stop_when_unchanged=values.get("stop_when_unchanged", ""),
        wait=values.get("wait"),
        approvers=tuple(values.get("approvers", ())),
        on_lost=values.get("on_lost", OnLost.FAIL),
        user=values.get("user", ""),
        resources=Resources(**values["resources"]) if "resources" in values else None,
        no_new_privileges=values.get("no_new_privileges", False),
        sandbox=_sandbox(values.get("sandbox")),
        is_finally=draft.is_finally,
        locks=tuple(values.get("locks") or ()),
    )
    if draft.check is not None:
        step = replace(step, completion_check=_check(step, draft))
    if step.python and step.job_type is not JobType.PYTHON:
        step = replace(step, python="")  # only its check used it
    return step


def _action(draft: StepDraft) -> dict[str, Any]:
    """The fields that steps and checks share."""
    values = draft.values
    assert draft.job_type is not None
    classes: dict[str, ErrorClass] = values.get("error_classes", {})
    return {
        "job_type": draft.job_type,
        "target": values.get("run", values.get("target", "")),
        "args": tuple(values.get("args", ())),
        "shell": values.get("shell", "") if draft.job_type is JobType.SHELL else "",
        "errexit": values.get("errexit") if draft.job_type is JobType.SHELL else None,
        "kwargs": values.get("kwargs", {}),
        "env": values.get("env", {}),
        "stdin": values.get("stdin"),
        "secret_files": values.get("secret_files", {}),
        "idle_timeout": values.get("idle_timeout"),
        "success_codes": frozenset(values.get("success_codes", (0,))),
        "error_classes": {int(code): kind for code, kind in classes.items()},
    }


def _check(step: Step, of: StepDraft) -> Step:
    """The completion check: a separate step with the same workspace as its step."""
    draft = of.check
    assert draft is not None
    name = step.id + CHECK_SUFFIX
    action = _action(draft)
    if draft.job_type is JobType.SHELL:
        action["shell"] = draft.values.get("shell", of.values.get("shell", ""))
        # Its exit code is an answer: a command such as `grep -c` that finds nothing is no failure.
        action["errexit"] = draft.values.get("errexit", False)
    # The result of the last check is available to the step, but not to the check itself.
    env = {key: text for key, text in step.env.items() if not _uses_check(text)}
    quarter = None if step.timeout is None else step.timeout / _CHECK_SHARE
    action["env"] = {**env, **action["env"]}
    action["secret_files"] = {**step.secret_files, **action["secret_files"]}
    return Step(
        **action,
        id=name,
        name=name,
        job=step.job,
        env_files=step.env_files,
        python=step.python if draft.job_type is JobType.PYTHON else "",
        workspace=step.workspace,
        timeout=draft.values.get("timeout", quarter),
        kill_grace=step.kill_grace,
        on_lost=step.on_lost,
        user=step.user,
        resources=step.resources,
        no_new_privileges=step.no_new_privileges,
        sandbox=step.sandbox,
    )


def _sandbox(given: dict[str, Any] | None) -> StepSandbox | None:
    if given is None:
        return None
    return StepSandbox(
        network=given.get("network", "host") == "host",
        read_only=tuple(given.get("read_only", ())),
        writable=tuple(given.get("writable", ())),
        private_tmp=given.get("private_tmp", False),
    )


def _uses_check(text: str) -> bool:
    expressions = parse_template(text).expressions if "{{" in text else ()
    return any(ref.root == "check" for expression in expressions for ref in expression.refs)


def _input(given: dict[str, Any]) -> Input:
    artifact = given["artifact"]
    return Input(step=given["from_"], artifact=artifact, path=given.get("as_", artifact))


def _retry(given: dict[str, Any]) -> Retry:
    default = Retry()
    if not given:
        return default
    on = given.get("on", RETRYABLE)
    return Retry(
        delay=given.get("delay", default.delay),
        backoff=given.get("backoff", default.backoff),
        max_delay=given.get("max_delay", default.max_delay),
        jitter=given.get("jitter", default.jitter),
        classes=frozenset(entry for entry in on if isinstance(entry, ErrorClass)),
        codes=frozenset(entry for entry in on if not isinstance(entry, ErrorClass)),
    )


def _condition(draft: StepDraft) -> str:
    """Its `when`, and the states of the run for which its handler is."""
    own: str = draft.values.get("when", "").strip()
    states = HANDLERS.get(draft.group, ())
    if not states:
        return own
    handled = " || ".join(f'run.state == "{state}"' for state in states)
    # The line break ends a comment of the step's own condition.
    return f"({handled}) && ({own}\n)" if own else handled


def _policy(draft: StepDraft, name: str, listed: bool) -> FailurePolicy:
    given: FailurePolicy | None = draft.values.get(name)
    if given is None:
        return FailurePolicy.CONTINUE if draft.is_finally else FailurePolicy.ABORT
    return FailurePolicy.CONTINUE if listed and given is FailurePolicy.SKIP else given
