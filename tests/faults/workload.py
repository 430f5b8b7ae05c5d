"""The workflows of the load, and what is true of each of their steps whatever happens to the daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faults import loud_step

_WHO = "$TOBAN_RUN_ID $TOBAN_STEP $TOBAN_ATTEMPT_TOKEN"
_DEAF = "trap '' TERM; sleep 60 & while :; do sleep 5; done"
"""Needs KILL, and so does what it has in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """`code` is what it exits with if it is left alone; None: never."""

    id: str
    depends_on: Sequence[str] = ()
    work: str = ":"
    code: int | None = 0
    timeout: float | None = None
    grace: float = 0.3
    continues: bool = False
    rerun_if_lost: bool = False
    repeats: str = ""
    """Prints what that step printed, through a template."""
    loud: int = 0
    """Prints that many lines to each stream."""

    def definition(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "depends_on": list(self.depends_on),
            "kill_grace": f"{self.grace * 1000:.0f}ms",
        }
        if self.loud:
            program = str(Path(loud_step.__file__).resolve())
            fields |= {"job_type": "exec", "target": sys.executable}
            fields["args"] = ["-I", "-S", program, str(self.loud)]
        else:
            fields["run"] = self._script()
        if self.timeout is not None:
            fields["timeout"] = f"{self.timeout * 1000:.0f}ms"
        if self.continues:
            fields["on_failure"] = "continue"
        if self.rerun_if_lost:
            fields["on_lost"] = "rerun"
        return fields

    def _script(self) -> str:
        said = f" {{{{ steps.{self.repeats}.stdout }}}}" if self.repeats else ""
        lines = [
            f'echo "B {_WHO}" >> "$WITNESS"',
            f'echo "$TOBAN_STEP $TOBAN_ATTEMPT_TOKEN"{said}',
            self.work,
        ]
        if self.code is not None:
            lines += [f'echo "E {_WHO} {self.code}" >> "$WITNESS"', f"exit {self.code}"]
        return "\n".join(lines)

    def printed(self, token: str, repeated: str = "") -> tuple[bytes, bytes]:
        """What it prints to both streams if nobody ends it; `repeated` is the token of the step that it repeats."""
        if self.loud:
            return loud_text(token, self.loud)
        said = f" {self.repeats} {repeated}" if self.repeats else ""
        return f"{self.id} {token}{said}\n".encode(), b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowModel:
    name: str
    steps: Sequence[StepModel]
    timeout: float | None = None
    concurrency: int | None = None
    weight: float = 1.0
    cancelled: float = 0.06
    """How many of its runs are cancelled."""

    def definition(self, witness: Path) -> str:
        fields: dict[str, Any] = {
            "name": self.name,
            "description": "part of the load",
            "overlap": "allow",
            "env": {"WITNESS": str(witness)},
            "steps": {step.id: step.definition() for step in self.steps},
        }
        if self.timeout is not None:
            fields["timeout"] = f"{self.timeout * 1000:.0f}ms"
        if self.concurrency is not None:
            fields["concurrency"] = self.concurrency
        return json.dumps(fields)

    def step(self, name: str) -> StepModel | None:
        return next((step for step in self.steps if step.id == name), None)


def loud_text(token: str, count: int) -> tuple[bytes, bytes]:
    whole = -(-count // loud_step.BLOCK) * loud_step.BLOCK
    return loud_step.lines(token, "out", 0, whole), loud_step.lines(token, "err", 0, whole)


def _sequence(*steps: StepModel) -> list[StepModel]:
    """Each depends on the one before it."""
    chained: list[StepModel] = []
    for step in steps:
        before = (chained[-1].id,) if chained else ()
        chained.append(replace(step, depends_on=before))
    return chained


def workload(*, rerun: bool = False) -> Mapping[str, WorkflowModel]:
    """`rerun`: some steps ask to be started again when they are lost."""
    branches = [StepModel(id=f"b{n}", depends_on=["first"], work=f"sleep 0.0{n}") for n in range(5)]
    found = [
        WorkflowModel(
            name="chain",
            weight=4,
            steps=_sequence(
                *(
                    StepModel(
                        id=f"s{n}",
                        work="sleep 0.05" if n % 3 == 1 else ":",
                        rerun_if_lost=rerun and n % 2 == 0,
                    )
                    for n in range(6)
                )
            ),
        ),
        WorkflowModel(
            name="dag",
            weight=3,
            concurrency=3,
            steps=[
                StepModel(id="first"),
                *branches,
                StepModel(id="last", depends_on=[b.id for b in branches], repeats="first"),
            ],
        ),
        WorkflowModel(
            name="wide",
            steps=[
                *(StepModel(id=f"w{n}", work="sleep 0.1") for n in range(6)),
                StepModel(id="join", depends_on=[f"w{n}" for n in range(6)]),
            ],
        ),
        WorkflowModel(
            name="slow-step",
            steps=_sequence(
                StepModel(id="before"),
                StepModel(id="slow", work=_DEAF, code=None, timeout=0.6, continues=True),
                StepModel(id="after"),
            ),
        ),
        WorkflowModel(
            name="slow-abort",
            steps=_sequence(
                StepModel(id="slow", work="exec sleep 60", code=None, timeout=0.4),
                StepModel(id="never"),
            ),
        ),
        WorkflowModel(
            name="slow-run",
            timeout=1.0,
            steps=[
                StepModel(id="quick"),
                StepModel(id="slow", depends_on=["quick"], work="exec sleep 60", code=None),
                StepModel(id="deaf", depends_on=["quick"], work=_DEAF, code=None),
                StepModel(id="never", depends_on=["slow", "deaf"]),
            ],
        ),
        WorkflowModel(
            name="endless",
            cancelled=1.0,
            steps=_sequence(
                StepModel(id="a", work="sleep 0.3"),
                StepModel(id="b", work=_DEAF, code=None),
                StepModel(id="c"),
            ),
        ),
        WorkflowModel(
            name="failing",
            steps=[
                StepModel(id="sibling", work="exec sleep 60", code=None),
                StepModel(id="bad", work="sleep 0.1", code=3),
                StepModel(id="never", depends_on=["bad"]),
            ],
        ),
        WorkflowModel(
            name="tolerant",
            steps=_sequence(
                StepModel(id="bad", code=4, continues=True), StepModel(id="after", work="sleep 0.02")
            ),
        ),
        WorkflowModel(
            name="loud",
            weight=1.2,
            steps=_sequence(StepModel(id="loud", loud=20_000), StepModel(id="after")),
        ),
    ]  # fmt: skip
    return {workflow.name: workflow for workflow in found}
