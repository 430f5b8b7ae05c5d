"""The workflows of the load, and the properties of each step that no fault may change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faults import loud_step

_WHO = "$TOBAN_RUN_ID $TOBAN_STEP{} $TOBAN_ATTEMPT_TOKEN"
_DEAF = "trap '' TERM; sleep 60 & while :; do sleep 5; done"
"""Needs KILL, and so does what it has in the background."""
CHECK = ".check"
SIZES = {"pair": 2}
"""Of locks; all others have 1."""
_GUARD_FDS = "56789"
ARTIFACT = "data"
_MADE_LINES = 200


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
    codes: Sequence[int] = ()
    """What its attempts exit with, one after the other, and the last of them from then on."""
    retries: int = 0
    """So often it is tried again; when that is used up there is a dead letter."""
    iterations: int = 0
    """Its completion check is content with that iteration."""
    max_iterations: int = 0
    """When these are used up it is INCOMPLETE."""
    judges_from: int = 0
    """It is itself such a check."""
    items: int = 0
    """It is run for so many items, two at a time."""
    child: str = ""
    """Instead of a process it has a run of that workflow."""
    makes: bool = False
    """Has an artifact, which depends on nothing but the attempt's token; see `made`."""
    reads: str = ""
    """Prints the artifact of that step."""
    when: bool | None = None
    """Has a condition, which says that."""
    locks: Sequence[str] = ()
    guards: Sequence[str] = ()
    """Locks that only it holds while it runs, or as many as SIZES says: a clash is a line of the witness file."""

    @property
    def check(self) -> StepModel:
        return StepModel(id=f"{self.id}{CHECK}", judges_from=self.iterations, grace=self.grace)

    @property
    def incomplete(self) -> bool:
        """Whether its check is never content."""
        return self.iterations > self.max_iterations

    def code_of(self, attempt: int, iteration: int) -> int | None:
        """What an attempt exits with if it is left alone."""
        if self.judges_from:
            return int(iteration < self.judges_from)
        return self.codes[min(attempt, len(self.codes)) - 1] if self.codes else self.code

    def definition(self, models: Mapping[str, StepModel]) -> dict[str, Any]:
        """`models` are all steps of the workflow."""
        fields: dict[str, Any] = {"depends_on": list(self.depends_on)}
        if self.when is not None:
            condition = f"steps[{json.dumps(self.depends_on[0])}].exit_code {{}} 0"
            fields["when"] = condition.format("==" if self.when else "!=")
        if self.child:
            return fields | {"job_type": "workflow", "target": self.child}
        fields["kill_grace"] = f"{self.grace * 1000:.0f}ms"
        if self.loud:
            program = str(Path(loud_step.__file__).resolve())
            fields |= {"job_type": "exec", "target": sys.executable}
            fields["args"] = ["-I", "-S", program, str(self.loud)]
        else:
            fields["run"] = self._script(models)
        if self.timeout is not None:
            fields["timeout"] = f"{self.timeout * 1000:.0f}ms"
        if self.continues:
            fields["on_failure"] = "continue"
        if self.rerun_if_lost:
            fields["on_lost"] = "rerun"
        if self.locks:
            fields["locks"] = list(self.locks)
        return fields | self._repeated(models) | self._handed()

    def _repeated(self, models: Mapping[str, StepModel]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.retries:
            retry = {"delay": "50ms", "backoff": 1, "jitter": 0}
            fields |= {"on_failure": "retry", "max_retries": self.retries, "retry": retry}
        if self.iterations:
            check = self.check
            fields["completion_check"] = {"run": check._script(models)}
            fields["max_iterations"] = self.max_iterations
            fields["on_iterations_exhausted"] = "continue"
        if self.items:
            fields |= {"for_each": list(range(self.items)), "max_parallel": 2}
        return fields

    def _handed(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.makes:
            fields["outputs"] = [{"name": ARTIFACT, "path": self._file}]
        if self.reads:
            given = {"from": self.reads, "artifact": ARTIFACT, "as": f"in-{self.id}"}
            fields["inputs"] = [given]
        return fields

    @property
    def _file(self) -> str:
        """Each instance has its own: they work in the same directory."""
        return f"made-{self.id}-{{{{ item }}}}" if self.items else f"made-{self.id}"

    def _script(self, models: Mapping[str, StepModel]) -> str:
        part = CHECK if self.judges_from else ""
        who = _WHO.format(part)
        said = f" {{{{ steps.{self.repeats}.stdout }}}}" if self.repeats else ""
        lines = [
            f'echo "B {who}" >> "$WITNESS"',
            *self._guarded(who),
            f'echo "$TOBAN_STEP{part} $TOBAN_ATTEMPT_TOKEN"{said}',
            self.work,
        ]
        if self.reads:
            count = models[self.reads].items
            parts = [f"in-{self.id}/{n}" for n in range(count)] if count else [f"in-{self.id}"]
            lines.append(f"cat {' '.join(parts)}")
        if self.makes:
            lines.append(f'seq -f "$TOBAN_ATTEMPT_TOKEN %g" {_MADE_LINES} > {self._file}')
        if self.code is not None:
            lines += [self._exit_code(), f'echo "E {who} $code" >> "$WITNESS"', "exit $code"]
        return "\n".join(lines)

    def _guarded(self, who: str) -> Iterator[str]:
        """The kernel frees these locks when the last process of the step is gone, whatever ended it."""
        fds = iter(_GUARD_FDS)
        for lock in self.guards:
            mine = [next(fds) for _ in range(SIZES.get(lock, 1))]
            yield "exec " + " ".join(f'{fd}>> "$WITNESS.{lock}.{n}"' for n, fd in enumerate(mine))
            tries = " || ".join(f"flock -n {fd}" for fd in mine)
            yield f'{tries} || echo "X {who} {lock}" >> "$WITNESS"'

    def _exit_code(self) -> str:
        if self.judges_from:
            return f"code=$((TOBAN_ITERATION < {self.judges_from}))"
        if not self.codes:
            return f"code={self.code}"
        cases = [f"{n}) code={code};;" for n, code in enumerate(self.codes[:-1], 1)]
        return f"case $TOBAN_ATTEMPT in {' '.join(cases)} *) code={self.codes[-1]};; esac"

    def printed(self, token: str, repeated: str = "", read: Sequence[str] = ()) -> tuple[bytes, bytes]:
        """The output to both streams if the step is not ended early.

        `repeated` is the token of the step that it repeats, `read` are those of what it reads.
        """
        if self.loud:
            return loud_text(token, self.loud)
        said = f" {self.repeats} {repeated}" if self.repeats else ""
        return f"{self.id} {token}{said}\n".encode() + b"".join(map(made, read)), b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowModel:
    name: str
    steps: Sequence[StepModel]
    last: Sequence[StepModel] = ()
    """Its finally steps: they run when all others have ended, and all of them do in every run that began."""
    timeout: float | None = None
    concurrency: int | None = None
    queue: bool = False
    """Its runs take turns, one at a time."""
    weight: float = 1.0
    locks: Sequence[str] = ()
    """Of each run."""
    cancelled: float = 0.06
    """How many of its runs are cancelled."""

    @property
    def all_steps(self) -> Sequence[StepModel]:
        return [*self.steps, *self.last]

    def definition(self, witness: Path) -> str:
        models = {step.id: step for step in self.all_steps}
        fields: dict[str, Any] = {
            "name": self.name,
            "description": "part of the load",
            "overlap": "queue" if self.queue else "allow",
            "env": {"WITNESS": str(witness)},
            "steps": {step.id: step.definition(models) for step in self.steps},
        }
        if self.last:
            fields["finally"] = {step.id: step.definition(models) for step in self.last}
        if self.timeout is not None:
            fields["timeout"] = f"{self.timeout * 1000:.0f}ms"
        if self.locks:
            fields["locks"] = list(self.locks)
        if self.concurrency is not None:
            fields["concurrency"] = self.concurrency
        return json.dumps(fields)

    def step(self, name: str) -> StepModel | None:
        return next((step for step in self.all_steps if step.id == name), None)

    def unit(self, name: str) -> StepModel | None:
        """What has processes of its own: a step, one of its instances (`each[2]`), or its check (`loop.check`)."""
        if name.endswith(CHECK):
            looping = self.step(name.removesuffix(CHECK))
            return looping.check if looping is not None and looping.iterations else None
        step = self.step(name.partition("[")[0])
        if step is None or bool(step.items) != ("[" in name):
            return None
        return replace(step, id=name, items=0)


def made(token: str) -> bytes:
    """What the artifact of an attempt consists of."""
    return "".join(f"{token} {n}\n" for n in range(1, _MADE_LINES + 1)).encode()


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
            steps=_sequence(StepModel(id="bad", code=4, continues=True), StepModel(id="after", work="sleep 0.02")),
        ),
        WorkflowModel(
            name="loud",
            weight=1.2,
            steps=_sequence(StepModel(id="loud", loud=20_000), StepModel(id="after")),
        ),
        *_repeating(),
        *_handing_on(),
        *_tidying_up(),
        *_locked(),
    ]
    return {workflow.name: workflow for workflow in found}


def _repeating() -> Sequence[WorkflowModel]:
    """Steps that are executed more than once, and runs that wait for each other."""
    return [
        WorkflowModel(
            name="retried",
            weight=2,
            cancelled=0.15,
            steps=_sequence(StepModel(id="flaky", codes=(3, 4, 0), retries=3), StepModel(id="after")),
        ),
        WorkflowModel(
            name="exhausted",
            steps=_sequence(StepModel(id="bad", codes=(5,), retries=2), StepModel(id="never")),
        ),
        WorkflowModel(
            name="incomplete",
            steps=_sequence(StepModel(id="loop", iterations=9, max_iterations=2), StepModel(id="after")),
        ),
        WorkflowModel(
            name="queued",
            queue=True,
            cancelled=0.15,
            steps=_sequence(StepModel(id="a", work="sleep 0.02"), StepModel(id="b")),
        ),
    ]


def _handing_on() -> Sequence[WorkflowModel]:
    """Steps that give files, values and runs to each other."""
    return [
        WorkflowModel(
            name="loop",
            weight=2,
            cancelled=0.15,
            steps=[
                StepModel(id="make", makes=True),
                StepModel(id="use", depends_on=["make"], reads="make"),
                StepModel(id="loop", depends_on=["make"], iterations=3, max_iterations=5, makes=True),
                StepModel(id="last", depends_on=["loop"], reads="loop"),
            ],
        ),
        WorkflowModel(
            name="each",
            weight=2,
            cancelled=0.15,
            steps=[
                StepModel(id="first"),
                StepModel(id="yes", depends_on=["first"], when=True),
                StepModel(id="no", depends_on=["first"], when=False),
                StepModel(id="each", depends_on=["first"], items=4, work="sleep 0.03", makes=True),
                StepModel(id="join", depends_on=["each", "yes", "no"], reads="each"),
            ],
        ),
        WorkflowModel(
            name="parent",
            weight=2,
            cancelled=0.15,
            steps=_sequence(StepModel(id="before"), StepModel(id="child", child="leaf"), StepModel(id="after")),
        ),
        WorkflowModel(
            name="leaf",
            weight=0,
            steps=[
                StepModel(id="make", makes=True, work="sleep 0.02"),
                StepModel(id="use", depends_on=["make"], reads="make"),
            ],
        ),
    ]


def _tidying_up() -> Sequence[WorkflowModel]:
    """Finally steps, after runs that end in every way."""
    plain = _sequence(StepModel(id="save"), StepModel(id="tidy", work="sleep 0.03"), StepModel(id="tell"))
    return [
        WorkflowModel(
            name="tidied",
            weight=3,
            cancelled=0.4,
            queue=True,
            steps=_sequence(StepModel(id="a"), StepModel(id="b", work="sleep 0.05"), StepModel(id="c")),
            last=plain,
        ),
        WorkflowModel(
            name="tidied-failure",
            weight=2,
            steps=[
                StepModel(id="sibling", work="exec sleep 60", code=None),
                StepModel(id="bad", work="sleep 0.05", code=3),
            ],
            last=[
                StepModel(id="flaky", codes=(3, 0), retries=2),
                StepModel(id="broken", code=4, continues=True),
                StepModel(id="after", depends_on=["flaky", "broken"]),
                StepModel(id="yes", depends_on=["flaky"], when=True),
                StepModel(id="each", items=2),
            ],
        ),
        WorkflowModel(
            name="tidied-timeout",
            timeout=0.6,
            steps=[StepModel(id="deaf", work=_DEAF, code=None)],
            last=[StepModel(id="long", work="sleep 0.7"), StepModel(id="child", child="tidied-leaf")],
        ),
        WorkflowModel(
            name="tidied-parent",
            weight=2,
            cancelled=0.4,
            steps=_sequence(StepModel(id="before"), StepModel(id="child", child="tidied-leaf")),
            last=[StepModel(id="tidy")],
        ),
        WorkflowModel(
            name="tidied-leaf",
            weight=0,
            steps=[StepModel(id="work", work="sleep 0.2")],
            last=plain,
        ),
    ]


def _locked() -> Sequence[WorkflowModel]:
    """Runs and steps of several workflows that exclude each other."""
    return [
        WorkflowModel(
            name="locked",
            locks=("db",),
            cancelled=0.2,
            steps=_sequence(StepModel(id="a", work="sleep 0.03", guards=("db",)), StepModel(id="b", guards=("db",))),
            last=[StepModel(id="tidy", guards=("db",))],
        ),
        WorkflowModel(
            name="sharing",
            weight=1.5,
            cancelled=0.2,
            steps=[
                StepModel(id="one", locks=("db",), guards=("db",), work="sleep 0.02"),
                StepModel(id="both", locks=("disk", "db"), guards=("db", "disk")),
                StepModel(id="flaky", locks=("disk",), codes=(3, 0), retries=2),
                StepModel(id="some", locks=("pair",), guards=("pair",), items=3, work="sleep 0.02"),
            ],
        ),
        WorkflowModel(
            name="caller",
            locks=("db",),
            cancelled=0.15,
            steps=_sequence(
                StepModel(id="before", guards=("db",)),
                StepModel(id="child", child="called"),
                StepModel(id="after", guards=("db",)),
            ),
        ),
        WorkflowModel(name="called", locks=("db",), weight=0.5, steps=[StepModel(id="only", guards=("db",))]),
    ]
