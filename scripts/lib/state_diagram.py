"""Writes the state diagrams of docs/architecture.md, between the markers, from the table of the domain."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from toband.domain.run_model import RunState, StepState
from toband.domain.state_table import PHASES, RUN_MOVES, STEP_MOVES, Move

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
BEGIN, END = "<!-- state diagrams: begin -->", "<!-- state diagrams: end -->"


def diagram(moves: Mapping[tuple[RunState, RunState], Move] | Mapping[tuple[StepState, StepState], Move]) -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> PENDING"]
    lines += [f"    {before.value} --> {after.value}: {move.when}" for (before, after), move in moves.items()]
    ends = sorted({after.value for _, after in moves if after.terminal})
    lines += [f"    {state} --> [*]" for state in ends]
    return "\n".join([*lines, "```"])


def phases() -> str:
    rows = [
        f"| {state.value} | {', '.join(sorted(phase.value for phase in PHASES[state]))} |"
        for state in StepState
        if state in PHASES
    ]
    return "\n".join(["| state | phases |", "|---|---|", *rows])


def section() -> str:
    parts = [
        BEGIN,
        "The states of a run:",
        diagram(RUN_MOVES),
        "The states of a step, or of an instance of a `for_each` step:",
        diagram(STEP_MOVES),
        "The phases of a step that has not ended:",
        phases(),
        END,
    ]
    return "\n\n".join(parts)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        print(f"state_diagram: {PAGE.name} has no markers", file=sys.stderr)
        return 1
    made = before + section() + after
    if sys.argv[1:] == ["--check"]:
        if made != text:
            print("state_diagram: docs/architecture.md is out of date: run scripts/gen-state-diagram", file=sys.stderr)
        return int(made != text)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
