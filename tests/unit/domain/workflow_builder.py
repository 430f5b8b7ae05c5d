"""Makes workflows of the short form in which the cases are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toban.definition import (
    ErrorClass,
    FailurePolicy,
    JobType,
    OnLost,
    Output,
    Overlap,
    Retry,
    Step,
    Wait,
    Workflow,
    parse_duration,
)
from toban.definition.model.step_model import DEFAULT_RETRIES
from toban.definition.model.workflow import DEFAULT_FINALLY_TIMEOUT


def workflow(
    steps: Mapping[str, Mapping[str, Any]],
    *,
    concurrency: int | None = None,
    timeout: float | str | None = None,
    last: Mapping[str, Mapping[str, Any]] | None = None,
    finally_timeout: float | str = DEFAULT_FINALLY_TIMEOUT,
) -> Workflow:
    """`last` are the steps of `finally`."""
    finally_steps = {
        name: replace(step(name, {"on_failure": "continue", **given}), is_finally=True)
        for name, given in (last or {}).items()
    }
    return Workflow(
        name="w",
        title="",
        version="1",
        description="",
        labels={},
        enabled=True,
        params={},
        env={},
        timeout=seconds(timeout),
        finally_timeout=seconds(finally_timeout) or 0,
        concurrency=concurrency,
        max_active_runs=1,
        overlap=Overlap.SKIP,
        steps={name: step(name, given) for name, given in steps.items()} | finally_steps,
    )


def seconds(given: float | str | None) -> float | None:
    return parse_duration(given) if isinstance(given, str) else given


def step(name: str, given: Mapping[str, Any]) -> Step:
    """Raises TypeError for a field that no step has."""
    fields = dict(given)
    for key in ("timeout", "idle_timeout", "kill_grace", "interval"):
        if key in fields:
            fields[key] = seconds(fields[key])
    check = fields.pop("completion_check", None)
    if "wait" in fields:
        fields["wait"] = _wait(fields["wait"])
    policy = FailurePolicy(fields.pop("on_failure", "abort"))
    made = Step(
        id=name,
        name=name,
        kwargs={},
        env={},
        job_type=JobType(fields.pop("job_type", "shell")),
        target=fields.pop("target", "true"),
        depends_on=tuple(fields.pop("depends_on", ())),
        success_codes=frozenset(fields.pop("success_codes", [0])),
        error_classes={c: ErrorClass(k) for c, k in fields.pop("error_classes", {}).items()},
        outputs=tuple(Output(**output) for output in fields.pop("outputs", ())),
        on_failure=policy,
        max_retries=fields.pop("max_retries", DEFAULT_RETRIES if policy == "retry" else 0),
        retry=_retry(fields.pop("retry", {})),
        on_failure_exhausted=FailurePolicy(fields.pop("on_failure_exhausted", "abort")),
        on_iterations_exhausted=FailurePolicy(fields.pop("on_iterations_exhausted", "abort")),
        on_lost=OnLost(fields.pop("on_lost", "fail")),
        **fields,
    )
    return made if check is None else replace(made, completion_check=_check(made, check))


def _retry(given: Mapping[str, Any]) -> Retry:
    fields = dict(given)
    on = fields.pop("on", None)
    for key in ("delay", "max_delay"):
        if key in fields:
            fields[key] = seconds(fields[key])
    if on is not None:
        fields["classes"] = frozenset(ErrorClass(each) for each in on if isinstance(each, str))
        fields["codes"] = frozenset(each for each in on if isinstance(each, int))
    return Retry(**fields)


def _wait(given: Mapping[str, Any]) -> Wait:
    duration = given.get("for")
    events = (given["event"],) if "event" in given else ()
    is_template = isinstance(duration, str) and "{{" in duration
    return Wait(duration=duration if is_template else seconds(duration), events=events, file=given.get("file", ""))


def _check(owner: Step, given: Mapping[str, Any]) -> Step:
    timeout = seconds(given.get("timeout"))
    if timeout is None and owner.timeout is not None:
        timeout = owner.timeout / 4
    return Step(
        id=f"{owner.id}.check",
        name=f"{owner.id}.check",
        job_type=JobType.SHELL,
        target="true",
        kwargs={},
        env={},
        timeout=timeout,
        kill_grace=owner.kill_grace,
    )
