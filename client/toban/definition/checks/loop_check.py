"""Checks retries and completion loops."""

from __future__ import annotations

from toban.definition.checks.step_kinds import decide_kind
from toban.definition.checks.step_layers import StepDraft
from toban.definition.model.step_model import DEFAULT_RETRIES, FailurePolicy
from toban.definition.scalars.values import describe
from toban.definition.schema.field_check import FieldAt, FieldOrigin, check_fields, read_fields
from toban.definition.schema.step_schema import CheckInput
from toban.definition.schema.unsupported_fields import UNSUPPORTED_STEP_FIELDS
from toban.definition.source.problem_collector import Reporter

_OF_LOOPS = ("max_iterations", "interval", "on_iterations_exhausted", "stop_when_unchanged")
LEAST_ITERATIONS = 2


def read_check(found: FieldAt, report: Reporter) -> StepDraft | None:
    """The completion check of a step, of a job or of the defaults; None after reporting that it is invalid."""
    node = found.value
    if node.wrong:
        return None
    if node.kind != "map":
        message = f"expected a mapping such as {{run: ./check.sh}}, found {describe(node.plain())}"
        report.at(node, found.path, message)
        return None
    fields = read_fields(
        node,
        found.path,
        report,
        known=CheckInput.model_fields,
        aliases={},
        unsupported=UNSUPPORTED_STEP_FIELDS,
    )
    values = check_fields(CheckInput, fields, report, skip=frozenset())
    draft = StepDraft("", found.path, node, fields, values)
    kind = values.get("job_type")
    if kind is not None and not kind.process:
        at = fields["job_type"]
        message = f"a completion check must be a process: job_type {kind} is not one"
        report.at(at.value, at.path, message)
    else:
        decide_kind(draft, report, choices='"run"', name="")
    return draft


def check_loop(draft: StepDraft, report: Reporter) -> None:
    """A loop needs a check and a limit; without a check there is nothing to limit."""
    if draft.open:
        return
    found = draft.fields.get("completion_check")
    if found is None:
        for name in _OF_LOOPS:
            if name in draft.fields:
                message = f'"{name}" applies only to steps with completion_check'
                draft.refuse(name, message, report)
        return
    if "max_iterations" in draft.fields and "max_iterations" not in draft.values:
        return  # reported already
    iterations = draft.values.get("max_iterations", 1)
    if iterations < LEAST_ITERATIONS:
        at = draft.fields.get("max_iterations", found)
        message = (
            f"a completion_check needs max_iterations of at least {LEAST_ITERATIONS}, "
            f"found {iterations}: how often may the step run?"
        )
        draft.reports(at, report).at(at.value if at is not found else at.key, at.path, message)


def retries_of(draft: StepDraft) -> int:
    """The number of retries of a failure."""
    default = DEFAULT_RETRIES if draft.values.get("on_failure") is FailurePolicy.RETRY else 0
    retries: int = draft.values.get("max_retries", default)
    return retries


def check_retries(draft: StepDraft, report: Reporter) -> None:
    """`on_failure_exhausted` and `retry` have an effect only with retries."""
    if draft.open or ("on_failure" in draft.fields and "on_failure" not in draft.values):
        return
    retrying = draft.values.get("on_failure") is FailurePolicy.RETRY
    if "on_failure_exhausted" in draft.fields and not retrying:
        message = '"on_failure_exhausted" belongs to on_failure: retry, which is not given'
        draft.refuse("on_failure_exhausted", message, report)
    retry = draft.fields.get("retry")
    if retry is not None and retry.origin is FieldOrigin.OWN and not retries_of(draft):
        message = "this has no effect without retries: add max_retries or on_failure: retry"
        report.at(retry.key, retry.path, message, warning=True)
