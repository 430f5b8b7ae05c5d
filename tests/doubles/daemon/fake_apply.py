"""The part of the fake daemon that applies several definitions at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc
from google.rpc import error_details_pb2

from doubles.daemon.fake_errors import Context, abort, info
from toban.definition import DefinitionKind, Document, parse
from toban.definition.checks.never_due import run_out
from toban.v1 import job_pb2, workflow_pb2

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon

Applied = list[workflow_pb2.AppliedDefinition]


async def apply(
    daemon: FakeDaemon, request: workflow_pb2.ApplyDefinitionsRequest, context: Context
) -> workflow_pb2.ApplyDefinitionsResponse:
    """A line that says BROKEN is an error for the daemon alone."""
    jobs = {name: job.definition.source for name, job in daemon.jobs.items()}
    for text in request.texts:
        found = parse(text.definition.source, text.file).documents
        jobs |= {each.name: each.source for each in found if each.kind is DefinitionKind.JOB}
    applied: Applied = []
    for text in request.texts:
        applied += _of_text(daemon, text, jobs, store=False)
    problems = [each for one in applied for each in one.problems if not each.warning]
    if problems and not request.validate_only:
        bad = error_details_pb2.BadRequest()
        for each in problems:
            bad.field_violations.add(field=each.path, description=each.message)
        details = (info("INVALID_DEFINITION"), bad, workflow_pb2.DefinitionProblems(problems=problems))
        await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the definition is not valid", *details)
    if problems:
        for one in applied:
            one.ClearField("outcome")
            one.ClearField("version")
            one.ClearField("updated_workflows")
    elif not request.validate_only:
        applied = [each for text in request.texts for each in _of_text(daemon, text, jobs, store=True)]
    return workflow_pb2.ApplyDefinitionsResponse(definitions=applied, valid=not problems)


def _of_text(daemon: FakeDaemon, text: workflow_pb2.DefinitionText, jobs: dict[str, str], *, store: bool) -> Applied:
    source = text.definition.source
    parsed = parse(source, text.file, jobs)
    now = datetime.now(UTC)
    late = [each for document in parsed.documents for each in run_out(document, text.file, now)]
    problems = [
        workflow_pb2.DefinitionProblem(
            file=text.file,
            line=each.line,
            column=each.column,
            path=each.path,
            message=each.message,
            warning=each.warning,
        )
        for each in (*parsed.problems, *late)
    ]
    problems += [
        workflow_pb2.DefinitionProblem(
            file=text.file, path="steps.one.run", line=number, column=5, message="found BROKEN, expected a command"
        )
        for number, line in enumerate(source.splitlines(), 1)
        if "BROKEN" in line
    ]
    applied = [_applied(daemon, text, document, store=store) for document in parsed.documents]
    applied = applied or [workflow_pb2.AppliedDefinition(file=text.file, line=1)]
    for problem in problems:
        above = [each for each in applied if each.line <= problem.line] or applied
        above[-1].problems.append(problem)
    return applied


def _applied(
    daemon: FakeDaemon, text: workflow_pb2.DefinitionText, document: Document, *, store: bool
) -> workflow_pb2.AppliedDefinition:
    is_job = document.kind is DefinitionKind.JOB
    definition = workflow_pb2.Definition(source=document.source, base_dir=text.definition.base_dir)
    applied = workflow_pb2.AppliedDefinition(
        name=document.name,
        kind=workflow_pb2.DEFINITION_KIND_JOB if is_job else workflow_pb2.DEFINITION_KIND_WORKFLOW,
        file=text.file,
        line=document.line,
    )
    stored: workflow_pb2.Workflow | job_pb2.Job | None
    stored = daemon.jobs.get(document.name) if is_job else daemon.workflows.get(document.name)
    if stored is not None and stored.definition == definition:
        applied.outcome, applied.version = workflow_pb2.APPLY_OUTCOME_UNCHANGED, stored.version
        return applied
    users = list(stored.used_by) if isinstance(stored, job_pb2.Job) else []
    applied.updated_workflows.extend(users)
    created = stored is None
    applied.outcome = workflow_pb2.APPLY_OUTCOME_CREATED if created else workflow_pb2.APPLY_OUTCOME_UPDATED
    applied.version = len(daemon.versions.get(document.name, ())) + 1
    if store and is_job:
        daemon.store_job(document.name, definition).used_by.extend(users)
    elif store:
        daemon.store_workflow(document.name, definition)
    return applied
