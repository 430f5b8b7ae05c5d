"""The shape of a definition as pydantic models, for the editors' JSON Schema and for `field_check`.

Only the shape: rules that depend on other fields (references, kinds of steps, cycles) are checked elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from toban.definition.model.grant import GrantRole
from toban.definition.model.workflow import DEFAULT_FINALLY_TIMEOUT, Overlap, ParamType
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.env_file_fields import EnvFiles
from toban.definition.schema.field_types import (
    FREE,
    ContextDir,
    Count,
    Env,
    Labels,
    Lax,
    Locks,
    Name,
    Priority,
    Size,
    Text,
    Timeout,
    Version,
    WorkflowPattern,
    check_param_name,
)
from toban.definition.schema.schedule_fields import (
    CalendarInput,
    Window,
    ZoneName,
)
from toban.definition.schema.start_schema import Schedules, Triggers, TriggersInput, Watches
from toban.definition.schema.step_schema import DefaultsInput, ListedStepInput, StepInput, WaitInput, WorkInput


class ParamInput(DefinitionPart):
    """A parameter of the workflow."""

    type: Annotated[ParamType, Lax] = ParamType.STRING
    default: Annotated[Any, FREE] = Field(None, description="Default value.")
    required: bool = Field(False, description="Whether every run must set it.")
    choices: Annotated[list[Any], Field(min_length=1)] | None = Field(None, description="The only values allowed.")
    secret: bool = Field(False, description="Whether its values are secrets: encrypted, and masked in logs.")
    description: str = ""


class RetentionInput(DefinitionPart):
    """How long ended runs are kept; at least one."""

    age: Timeout | None = Field(None, description="Runs that ended longer ago are removed.")
    runs: Count | None = Field(None, description="How many of the newest runs are kept.")
    bytes: Size | None = Field(None, description="Total size of runs and logs.")


class GrantInput(DefinitionPart):
    """A role for the steps of a workflow; without workflows and labels, for all workflows and the daemon itself."""

    role: Annotated[GrantRole, Lax] = Field(description="viewer, operator, editor or admin.")
    workflows: Annotated[list[WorkflowPattern], Field(min_length=1)] | None = Field(
        None, description="For the workflows and jobs with these names, or patterns such as nightly-*."
    )
    labels: Annotated[Labels, Field(min_length=1)] | None = Field(
        None, description="For the workflows and jobs with all of these labels."
    )


class JobInput(WorkInput):
    """A job: a step to be used by name, or to be run alone; its key is its id."""

    id: Name | None = Field(None, description="The same as its key.")
    wait: WaitInput | None = Field(None, description="What it waits for; short for job_type: wait.")
    name: Text | None = Field(None, description="Shown to people.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    labels: Labels = Field(default={})
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    schedule: Schedules | None = Field(
        None, description="When it starts by itself: a crontab expression, a mapping, or a list."
    )
    timezone: ZoneName | None = Field(None, description="Of its schedules; default: the daemon's.")
    calendar: CalendarInput | None = Field(None, description="Of its schedules; default: the daemon's.")
    on: Triggers | None = Field(None, description="Events that start it: a type, a mapping, or a list.")
    triggers: TriggersInput | None = Field(None, description="Schedule and events in one mapping, instead of both.")


_Steps = Annotated[dict[Name, StepInput], Field(min_length=1)] | Annotated[list[ListedStepInput], Field(min_length=1)]
_FinallySteps = StepInput | _Steps


class WorkflowInput(DefinitionPart):
    """A Toban workflow."""

    id: Name | None = Field(None, description="Unique id of the workflow; default: the name.")
    name: Text | None = Field(None, description="Unique id of the workflow; its title, if there is an id.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    version: Version = Field("1", description="Version of the format.")
    description: str = ""
    labels: Labels = Field(default={})
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    schedule: Schedules | None = Field(
        None, description="When it starts by itself: a crontab expression, a mapping, or a list."
    )
    timezone: ZoneName | None = Field(None, description="Of its schedules and blackouts; default: the daemon's.")
    calendar: CalendarInput | None = Field(None, description="Of its schedules; default: the daemon's.")
    blackout: Annotated[list[Window], Field(min_length=1)] | None = Field(
        None, description='Windows in which schedules start no runs, such as "0 2 * * sun/2h".'
    )
    on: Triggers | None = Field(None, description="Events that start it: a type, a mapping, or a list.")
    triggers: TriggersInput | None = Field(None, description="Schedule and events in one mapping, instead of both.")
    watch: Watches | None = Field(
        None,
        description="Files and directories whose changes are FILE_CHANGED events; "
        "relative ones start at the base directory.",
    )
    params: dict[Annotated[str, AfterValidator(check_param_name)], ParamInput] = Field(default={})
    env: Env = Field(default={}, description="Environment of every step.")
    env_file: EnvFiles | None = Field(
        None, description="Files with environment variables of every step, in dotenv format; env wins over them."
    )
    timeout: Timeout | None = Field(None, description="Of the whole run, from its start.")
    concurrency: Count | None = Field(None, description="Steps of one run at the same time.")
    max_active_runs: Count = Field(1, description="Runs of this workflow at the same time.")
    overlap: Annotated[Overlap, Lax] = Field(
        Overlap.SKIP,
        description="What happens to a run beyond max_active_runs: skip refuses it, queue makes it wait, "
        "replace cancels the oldest, allow ignores the limit.",
    )
    priority: Priority = Field(0, description="Order in the queue: higher runs first.")
    retention: RetentionInput | None = Field(None, description="How long ended runs are kept.")
    locks: Locks | None = Field(
        None, description="Locks that each run holds from its start to its end; it waits until it gets all of them."
    )
    grants: list[GrantInput] = Field(
        default=[], description="What its steps may do beyond their own runs; its author needs at least the same role."
    )
    context_dir: ContextDir = Field("", description="Where artifacts go; default: a directory of the run.")
    scopes: dict[Name, Annotated[list[str], Field(min_length=1)]] = Field(
        default={}, description="Named subsets of the steps, for partial runs."
    )
    defaults: DefaultsInput | None = None
    steps: _Steps = Field(description="A mapping ordered by depends_on, or a list that runs in order.")
    finally_: _FinallySteps | None = Field(
        None, alias="finally", description="Steps that run when all others have ended, whatever happened."
    )
    finally_timeout: Timeout = Field(DEFAULT_FINALLY_TIMEOUT, description="Of all finally steps together.")
    on_success: _FinallySteps | None = Field(None, description="Finally steps of a run that succeeded.")
    on_failure: _FinallySteps | None = Field(None, description="Finally steps of a run that failed or timed out.")
    on_cancel: _FinallySteps | None = Field(None, description="Finally steps of a run that was cancelled.")


class JobsInput(DefinitionPart):
    """A document of Toban jobs."""

    version: Version = Field("1", description="Version of the format.")
    jobs: Annotated[dict[Name, JobInput], Field(min_length=1)] = Field(
        description="Jobs by their ids, which they share with workflows."
    )
