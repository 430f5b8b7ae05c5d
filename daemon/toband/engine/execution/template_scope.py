"""The scope of a step's templates: parameters, the run, and the results of earlier steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition import NO_EVENT, NO_ITEM, RenderError, Scope, format_size
from toban.limits import MAX_SEEN_BYTES, weight
from toband.domain.attempt_model import CHECK, Attempt, AttemptState
from toband.domain.plan import Plan
from toband.domain.run_model import Run, StepRun, StepState
from toband.domain.secret_params import shown_params
from toband.ports import LogKind, Logs, OutputTooLargeError, Values

STDOUT_LIMIT = 64 * 1024
_AT_ONCE = 20
"""Files that are read before others get their turn in the event loop."""


@dataclass(frozen=True, slots=True)
class TemplateScope:
    """Reads the output and results of steps. May read files, a few at a time, in the caller's thread."""

    logs: Logs
    values: Values
    work: Callable[[str], str]
    """The run's own directory."""

    async def scope(
        self, plan: Plan, run: Run, step: StepRun, wanted: Mapping[str, frozenset[str]], *, base_dir: str
    ) -> Scope:
        """`wanted` lists what the templates use of other steps; nothing else is read. Raises RenderError, OSError."""
        own = self.work(run.id)
        looping = plan.step(step.id).completion_check is not None
        return Scope(
            params=shown_params(run.params),
            run={
                "id": run.id,
                "workflow": run.workflow,
                "number": run.number,
                "trigger": run.trigger.value.lower(),
                "scope": run.scope,
                "retry_of": run.retry_of,
                "dir": own,
                "base_dir": base_dir or own,
                "scheduled_at": run.scheduled_at.isoformat() if run.scheduled_at else "",
                "missed": [at.isoformat() for at in run.missed],
                **_result(plan, run),
            },
            env=plan.workflow.env,
            steps={
                name: {field: await self._field(plan, run, name, field) for field in fields}
                for name, fields in wanted.items()
            },
            item=step.item if step.parent else NO_ITEM,
            iteration=step.iteration or 1,
            check=_Said(self, run, step) if looping else {},
            event=run.event or NO_EVENT,
        )

    async def _field(self, plan: Plan, run: Run, name: str, field: str) -> Any:
        step = run.steps[name]
        if plan.steps[name].for_each is None or field == "status":
            return self._value(step, field)
        values: list[Any] = []
        left = MAX_SEEN_BYTES
        for number in range(step.instances):
            member = run.steps[f"{name}[{number}]"]
            values.append(self._value(member, field))
            large = member.spilled if field in ("result", "outputs") else 0
            left -= max(large, weight(values[-1], left))
            if left < 0:
                raise RenderError(
                    f"cannot use steps.{name}.{field}: its instances left more than {format_size(MAX_SEEN_BYTES)}; "
                    "let them write files and pass the paths instead"
                )
            if large or number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return values

    def _value(self, step: StepRun, field: str) -> Any:
        match field:
            case "stdout" | "stderr":
                if step.attempt is None or step.attempt.child:
                    return ""
                return self.printed(step.attempt, field, f"steps.{step.id}.{field}")
            case "exit_code":
                return step.exit_code if step.exit_code is not None else -1
            case "status":
                if step.state is StepState.SKIPPED and step.source:
                    return StepState.SUCCEEDED.value  # its state in the run that its values come from
                return step.state.value if step.state is not StepState.PENDING else ""
            case "result":
                return self._left(step)[0]
            case "outputs":
                return self._left(step)[1]
            case _:
                raise RenderError(f"cannot use steps.{step.id}.{field}: there is no such field")

    def _left(self, step: StepRun) -> tuple[Any, dict[str, str]]:
        if not step.spilled:
            return step.result, dict(step.outputs)
        assert step.attempt is not None
        result, outputs = self.values.load(step.attempt)
        return result, dict(outputs)

    def printed(self, attempt: Attempt, field: str, what: str) -> str:
        kind = LogKind.STDOUT if field == "stdout" else LogKind.STDERR
        try:
            printed = self.logs.printed(attempt, kind, STDOUT_LIMIT)
        except OutputTooLargeError as error:
            raise RenderError(
                f"cannot use {what}: it is larger than {STDOUT_LIMIT // 1024} KiB; "
                "write it to a file and pass the path instead"
            ) from error
        return printed.decode(errors="replace").removesuffix("\n")


def _result(plan: Plan, run: Run) -> dict[str, Any]:
    """The result of the run, for its `finally` steps."""
    if run.finally_part is None:
        return {}
    failed = (name for name in plan.ordered if run.steps[name].state is StepState.FAILED)
    return {
        "state": run.finally_part.state.value,
        "failed_steps": [name for name in failed if name not in plan.finally_steps],
        "error": run.error,
    }


class _Said(dict[str, Any]):
    """The output of the last completion check, read on access; empty before the first check."""

    def __init__(self, seen: TemplateScope, run: Run, step: StepRun) -> None:
        code = step.check_exit_code if step.check_exit_code is not None else -1
        super().__init__(stdout="", stderr="", exit_code=code)
        self._seen, self._run, self._step = seen, run, step

    def __getitem__(self, field: str) -> Any:
        step = self._step
        if field == "exit_code" or not step.check_token:
            return super().__getitem__(field)
        said = Attempt(
            id="",
            run_id=self._run.id,
            step=f"{step.id}{CHECK}",
            number=step.checks,
            ordinal=-1,
            token=step.check_token,
            state=AttemptState.FAILED,
            created_at=self._run.created_at,
        )
        return self._seen.printed(said, field, f"check.{field}")
