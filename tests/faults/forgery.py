"""A history, a ledger and a witness file made by hand, all of them true; a test then forges one thing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.checker import Defect, Excuse, check, never
from faults.history import AttemptOnDisk, History, Printed
from faults.load import Ledger
from faults.witness import Witness
from faults.workload import ARTIFACT, StepModel, WorkflowModel, loud_text
from faults.workload import made as made_by
from toban.v1 import dead_letter_pb2, run_pb2

OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR
START = 1_000_000_000

_MODELS = [
    WorkflowModel(
        name="plain",
        concurrency=1,
        steps=[
            StepModel(id="a"),
            StepModel(id="b", depends_on=["a"], repeats="a"),
            StepModel(id="loud", depends_on=["a"], loud=10),
        ],
    ),
    WorkflowModel(
        name="slow",
        steps=[
            StepModel(id="slow", code=None, timeout=2.0, continues=True),
            StepModel(id="after", depends_on=["slow"]),
        ],
    ),
    WorkflowModel(
        name="bounded",
        timeout=3.0,
        steps=[
            StepModel(id="long", code=None),
            StepModel(id="never", depends_on=["long"]),
        ],
    ),
    WorkflowModel(
        name="endless",
        steps=[
            StepModel(id="long", code=None),
            StepModel(id="never", depends_on=["long"]),
        ],
    ),
    WorkflowModel(
        name="failing",
        steps=[
            StepModel(id="bad", code=3),
            StepModel(id="sibling", code=None),
            StepModel(id="never", depends_on=["bad"]),
        ],
    ),
    WorkflowModel(name="again", steps=[StepModel(id="only", rerun_if_lost=True)]),
    WorkflowModel(
        name="retried",
        steps=[
            StepModel(id="flaky", codes=(3, 0), retries=2),
            StepModel(id="bad", codes=(5,), retries=1, depends_on=["flaky"]),
        ],
    ),
    WorkflowModel(
        name="loop",
        steps=[
            StepModel(id="loop", iterations=2, max_iterations=3, makes=True),
            StepModel(id="short", iterations=9, max_iterations=1),
            StepModel(id="last", depends_on=["loop", "short"], reads="loop"),
        ],
    ),
    WorkflowModel(
        name="each",
        steps=[
            StepModel(id="each", items=3, makes=True),
            StepModel(id="no", depends_on=["each"], when=False),
            StepModel(id="join", depends_on=["each", "no"], reads="each"),
        ],
    ),
    WorkflowModel(
        name="parent",
        steps=[StepModel(id="child", child="leaf"), StepModel(id="after", depends_on=["child"])],
    ),
    WorkflowModel(name="leaf", queue=True, steps=[StepModel(id="only")]),
    WorkflowModel(
        name="tidied",
        steps=[StepModel(id="long", code=None)],
        last=[StepModel(id="tidy"), StepModel(id="tell", depends_on=["tidy"], code=4, continues=True)],
    ),
    WorkflowModel(name="holder", locks=("db",), steps=[StepModel(id="one"), StepModel(id="two")]),
    WorkflowModel(name="sharer", steps=[StepModel(id="db", locks=("db",)), StepModel(id="pair", locks=("pair",))]),
]


@dataclass
class Forged:
    """`lines` are those of the witness file; `streams` what the logs hold."""

    ledger: Ledger = field(default_factory=Ledger)
    runs: dict[str, run_pb2.Run] = field(default_factory=dict)
    processes: dict[str, list[run_pb2.ProcessExecution]] = field(default_factory=dict)
    files: dict[str, list[AttemptOnDisk]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    streams: dict[str, dict[tuple[str, int, int], bytes]] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)
    letters: dict[str, list[dead_letter_pb2.DeadLetter]] = field(default_factory=dict)
    artifacts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """By run and step."""
    lost: Excuse = never
    unstarted: Excuse = never

    def check(self) -> list[Defect]:
        return check(
            {model.name: model for model in _MODELS},
            self.ledger,
            History(
                runs=self.runs,
                processes=self.processes,
                logs=self,
                artifacts=self,
                letters=self.letters,
                files=self.files,
            ),
            Witness.parse(self.lines),
            lost=self.lost,
            unstarted=self.unstarted,
        )

    def printed(self, run_id: str) -> Printed:
        return Printed(streams=self.streams.get(run_id, {}), complete=run_id not in self.incomplete)

    def content(self, run_id: str, step: str, name: str) -> bytes:
        assert name == ARTIFACT
        return self.artifacts[run_id, step]

    def step(self, run_id: str, step: str) -> run_pb2.Step:
        return next(each for each in self.runs[run_id].steps if each.id == step)

    def process(self, run_id: str, step: str) -> run_pb2.ProcessExecution:
        return next(each for each in self.processes[run_id] if each.step == step)

    def line(self, begins_with: str) -> int:
        return next(n for n, line in enumerate(self.lines) if line.startswith(begins_with))

    # -- making what is true

    def run(self, name: str, state: str, cause: str = "", took: float = 1.0) -> run_pb2.Run:
        """A run whose id is its workflow's name."""
        made = run_pb2.Run(id=name, workflow=name, state=run_pb2.RunState.Value(f"RUN_STATE_{state}"))
        made.started_at.FromMicroseconds(START * 1_000_000)
        made.finished_at.FromMicroseconds(int((START + took) * 1e6))
        if cause:
            made.ending.cause = run_pb2.RunEndingCause.Value(f"RUN_ENDING_CAUSE_{cause.upper()}")
        self.runs[name] = made
        self.processes[name] = []
        self.streams[name] = {}
        self.ledger.workflows[name] = name
        self.ledger.requests[name] = f"request of {name}"
        return made

    def add_step(self, run_id: str, step: str, state: str, reason: str = "", *, token: str = "", **facts: Any) -> None:
        """With an artifact of the attempt of that token, if one is given."""
        made_step = self.runs[run_id].steps.add(id=step, **facts)
        if state == "SKIPPED":
            made_step.skip_reason = run_pb2.SkipReason.Value(f"SKIP_REASON_{reason.upper()}")
        else:
            made_step.reason = reason
        made_step.state = run_pb2.StepState.Value(f"STEP_STATE_{state}")
        made_step.parent = step.partition("[")[0] if "[" in step else ""
        if token:
            made_step.artifacts.add(name=ARTIFACT)
            self.artifacts[run_id, step] = made_by(token)

    def add_process(
        self,
        run_id: str,
        step: str,
        state: str,
        *,
        cause: str = "exited",
        code: int | None = None,
        took: float = 0.5,
        attempt: int = 1,
        iteration: int = 1,
        printed: Sequence[bytes] | None = None,
    ) -> run_pb2.ProcessExecution:
        """Its token is its step's name with the number of the attempt."""
        made = run_pb2.ProcessExecution(run_id=run_id, step=step, attempt=attempt, iteration=iteration, pid=77)
        made.id = f"{run_id}-{len(self.processes[run_id]):03}"
        made.state = run_pb2.ProcessState.Value(f"PROCESS_STATE_{state}")
        made.started_at.FromMicroseconds(START * 1_000_000)
        made.finished_at.FromMicroseconds(int((START + took) * 1e6))
        made.ending.cause = run_pb2.ProcessEndingCause.Value(f"PROCESS_ENDING_CAUSE_{cause.upper()}")
        made.ending.proved_empty = True
        if code is not None:
            made.exit_code = code
        elif cause != "lost":
            made.ending.signals.append("TERM")
        token = f"{step}{attempt}"
        who = f"{run_id} {step} {token}"
        said = printed if printed is not None else (f"{step} {token}\n".encode(), b"")
        self.lines.append(f"B {who}")
        if code is not None:
            digests = " ".join(hashlib.sha256(data).hexdigest() for data in said)
            self.lines.append(f"E {who} {code} {digests}")
        for stream, data in zip((OUT, ERR), said, strict=True):
            if data:
                self.streams[run_id][step, attempt, stream] = data
        made.stdout_log_bytes, made.stderr_log_bytes = map(len, said)
        self.processes[run_id].append(made)
        return made


def truth() -> Forged:
    """A run of every kind, as they are when nothing goes wrong."""
    made = Forged()
    made.run("plain", "SUCCEEDED")
    for step in ("a", "b", "loud"):
        made.add_step("plain", step, "SUCCEEDED")
    made.add_process("plain", "a", "COMPLETED", code=0)
    made.add_process("plain", "b", "COMPLETED", code=0, printed=(b"b b1 a a1\n", b""))
    made.add_process("plain", "loud", "COMPLETED", code=0, printed=loud_text("loud1", 10))

    made.run("slow", "SUCCEEDED").failed_steps = 1
    made.add_step("slow", "slow", "FAILED", "timed out")
    made.add_step("slow", "after", "SUCCEEDED")
    made.add_process("slow", "slow", "TIMED_OUT", cause="timeout", took=2.2)
    made.add_process("slow", "after", "COMPLETED", code=0)

    made.run("bounded", "TIMED_OUT", "timed_out", took=3.1)
    made.add_step("bounded", "long", "CANCELLED")
    made.add_step("bounded", "never", "SKIPPED", "timed_out")
    made.add_process("bounded", "long", "TIMED_OUT", cause="run_timeout", took=3.05)

    cancelled = made.run("endless", "CANCELLED", "cancelled")
    cancelled.cancel_requested_at.FromMicroseconds(START * 1_000_000)
    made.add_step("endless", "long", "CANCELLED")
    made.add_step("endless", "never", "SKIPPED", "cancelled")
    made.add_process("endless", "long", "CANCELLED", cause="cancel")
    made.ledger.cancel_sent.add("endless")
    made.ledger.cancel_acknowledged.add("endless")
    made.ledger.ended["endless"] = run_pb2.RUN_STATE_CANCELLED

    made.run("failing", "FAILED", "aborted")
    made.add_step("failing", "bad", "FAILED", "exit code 3")
    made.add_step("failing", "sibling", "CANCELLED")
    made.add_step("failing", "never", "SKIPPED", "aborted")
    made.add_process("failing", "bad", "FAILED", code=3)
    made.add_process("failing", "sibling", "CANCELLED", cause="cancel")
    repeated(made)
    return made


def repeated(made: Forged) -> None:
    """Steps that are tried again, loops, items and children."""
    made.run("retried", "FAILED", "aborted")
    made.add_step("retried", "flaky", "SUCCEEDED")
    made.add_step("retried", "bad", "FAILED", "exit code 5")
    made.add_process("retried", "flaky", "FAILED", code=3)
    made.add_process("retried", "flaky", "COMPLETED", code=0, attempt=2)
    for attempt in (1, 2):
        made.add_process("retried", "bad", "FAILED", code=5, attempt=attempt)
    letter = dead_letter_pb2.DeadLetter(run_id="retried", step="bad", attempts=2)
    made.letters["retried"] = [letter]

    made.run("loop", "SUCCEEDED")
    made.add_step("loop", "loop", "SUCCEEDED", iteration=2, token="loop2")
    made.add_step("loop", "short", "INCOMPLETE", iteration=1)
    made.add_step("loop", "last", "SUCCEEDED")
    for n in (1, 2):
        made.add_process("loop", "loop", "COMPLETED", code=0, attempt=n, iteration=n)
        state = "FAILED" if n == 1 else "COMPLETED"
        made.add_process("loop", "loop.check", state, code=2 - n, attempt=n, iteration=n)
    made.add_process("loop", "short", "COMPLETED", code=0)
    made.add_process("loop", "short.check", "FAILED", code=1)
    read = StepModel(id="last", reads="loop").printed("last1", read=["loop2"])
    made.add_process("loop", "last", "COMPLETED", code=0, printed=read)

    made.run("each", "SUCCEEDED")
    made.add_step("each", "each", "SUCCEEDED")
    names = [f"each[{n}]" for n in range(3)]
    for name in names:
        made.add_step("each", name, "SUCCEEDED", token=f"{name}1")
        made.add_process("each", name, "COMPLETED", code=0)
    made.add_step("each", "no", "SKIPPED", "when")
    made.add_step("each", "join", "SUCCEEDED")
    read = StepModel(id="join", reads="each").printed("join1", read=[f"{n}1" for n in names])
    made.add_process("each", "join", "COMPLETED", code=0, printed=read)

    tidied = made.run("tidied", "CANCELLED", "cancelled")
    tidied.cancel_requested_at.FromMicroseconds(START * 1_000_000)
    tidied.finally_part.state = tidied.state
    made.add_step("tidied", "long", "CANCELLED")
    made.add_step("tidied", "tidy", "SUCCEEDED")
    made.add_step("tidied", "tell", "FAILED", "exit code 4")
    made.add_process("tidied", "long", "CANCELLED", cause="cancel")
    made.add_process("tidied", "tidy", "COMPLETED", code=0)
    made.add_process("tidied", "tell", "FAILED", code=4)
    made.ledger.cancel_sent.add("tidied")

    parent = made.run("parent", "SUCCEEDED")
    made.add_step("parent", "child", "SUCCEEDED", child_run="leaf")
    made.add_step("parent", "after", "SUCCEEDED")
    child = run_pb2.ProcessExecution(id="leaf", child_run="leaf", step="child", attempt=1)
    child.state = run_pb2.PROCESS_STATE_COMPLETED
    made.processes["parent"].append(child)
    leaf = made.run("leaf", "SUCCEEDED")
    leaf.parent_run, leaf.parent_step, leaf.number = parent.id, "child", 1
    del made.ledger.workflows["leaf"]
    made.add_step("leaf", "only", "SUCCEEDED")
    made.add_process("leaf", "only", "COMPLETED", code=0)
    made.add_process("parent", "after", "COMPLETED", code=0)

    for name, steps in (("holder", ("one", "two")), ("sharer", ("db", "pair"))):
        made.run(name, "SUCCEEDED")
        for step in steps:
            made.add_step(name, step, "SUCCEEDED")
            made.add_process(name, step, "COMPLETED", code=0)


def lost(made: Forged, *, excused: bool) -> None:
    """Adds a run whose first attempt is LOST, and whose second one succeeds."""
    made.run("again", "SUCCEEDED")
    made.add_step("again", "only", "SUCCEEDED")
    made.add_process("again", "only", "LOST", cause="lost")
    made.add_process("again", "only", "COMPLETED", code=0, attempt=2)
    if excused:
        made.lost = lambda _process, _file: ""
