from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban.cli.human_text import width
from toban.cli.render.step_tree import ASCII, UNICODE, Signs, tree_lines
from toban.v1 import run_pb2

from .conftest import OnTerminal

BEGIN = datetime(2026, 2, 1, tzinfo=UTC)
NOW = BEGIN + timedelta(seconds=100)


def step(
    name: str, *needs: str, state: str = "PENDING", took: tuple[float, float | None] | None = None, **more: Any
) -> run_pb2.Step:
    made = run_pb2.Step(
        id=name, depends_on=needs, state=run_pb2.StepState.Value(f"STEP_STATE_{state}"), title=more.pop("title", name)
    )
    made.MergeFrom(run_pb2.Step(**more))
    if took is not None:
        made.started_at.FromDatetime(BEGIN + timedelta(seconds=took[0]))
        if took[1] is not None:
            made.finished_at.FromDatetime(BEGIN + timedelta(seconds=took[1]))
    return made


def drawn(steps: Sequence[run_pb2.Step], chars: Signs = UNICODE, columns: int = 100, **more: Any) -> list[str]:
    run = run_pb2.Run()
    run.started_at.FromDatetime(BEGIN)
    for index, one in enumerate(one for one in steps if not one.parent):
        one.index = index
    lines = tree_lines(run, steps, chars, columns=columns, now=NOW, **more)
    return ["".join(text for text, _ in line) for line in lines]


GRAPH = [
    step("fetch", state="SUCCEEDED", took=(0, 20)),
    step("lint", "fetch", state="SUCCEEDED", took=(20, 30)),
    step("unit", "lint", state="RUNNING", took=(50, None)),
    step("build", "fetch", state="FAILED", took=(20, 70), title="組み立て", reason="exit code 2", attempts=3),
    step("publish", "unit", "build"),
    step("tell", "publish"),
    step("clean", state="SKIPPED", skip_reason=run_pb2.SKIP_REASON_WHEN, is_finally=True),
]


def test_branches_are_indented_and_joined_below_the_step_where_they_begin() -> None:
    assert drawn(GRAPH, columns=86) == [
        "✓ fetch                succeeded  20s  ━━━",
        "├─ ✓ lint              succeeded  10s    ━━━",
        "│  ▸ unit              running    50s         ━━━━━━━",
        "├─ ✗ 組み立て (build)  failed     50s    ━━━━━━━━      exit code 2, 3 attempts",
        "└─ ◦ publish           pending                         after unit, build",
        "   ◦ tell              pending",
        "- clean                skipped                         finally, its condition is false",
    ]


def test_other_encodings_get_ascii() -> None:
    lines = drawn([one for one in GRAPH if one.id != "build"], ASCII)
    assert "\n".join(lines).isascii()
    assert lines[0].startswith("+ fetch ")
    assert "====" in lines[0]


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    long = step("x" * 90, "fetch", state="FAILED", took=(1, 2), reason="なぜか失敗した。" * 20 + "word " * 20)
    wide = drawn([*GRAPH, long], columns=columns)
    if columns >= 60:
        assert max(map(width, wide)) <= columns
    text = "".join("".join(wide).split())
    assert text.count("なぜか失敗した") >= 15 or columns < 60


def test_deep_nesting_and_long_chains() -> None:
    chain = [step("s0"), *(step(f"s{number}", f"s{number - 1}") for number in range(1, 600))]
    lines = drawn(chain)
    assert len(lines) == 600
    assert all(line.startswith("◦ s") for line in lines)
    ladder = [step("a0")]
    for number in range(1, 30):
        ladder += [step(f"a{number}", f"a{number - 1}"), step(f"b{number}", f"a{number - 1}")]
    assert len(drawn(ladder, columns=80)) == 59


def test_a_join_far_below_stands_where_its_branches_begin() -> None:
    steps = [
        step("a"),
        step("b", "a"),
        step("c", "b"),
        step("d", "a"),
        step("e", "d"),
        step("f", "c", "e"),
        step("g", "f"),
    ]
    assert [line.split("  pending")[0].rstrip() for line in drawn(steps)] == [
        "◦ a",
        "├─ ◦ b",
        "│  ◦ c",
        "├─ ◦ d",
        "│  ◦ e",
        "└─ ◦ f",
        "   ◦ g",
    ]


def test_steps_in_any_order_of_the_definition() -> None:
    steps = [step("last", "middle"), step("middle", "first"), step("first")]
    assert [line.split()[1] for line in drawn(steps)] == ["first", "middle", "last"]


def test_of_many_branches_those_that_matter_are_shown() -> None:
    many = [step(f"t{number}", "root", state="SUCCEEDED") for number in range(40)]
    many[30].state = run_pb2.STEP_STATE_FAILED
    many[35].state = run_pb2.STEP_STATE_RUNNING
    join = step("join", *(one.id for one in many))
    lines = drawn([step("root", state="SUCCEEDED"), *many, join])
    assert len(lines) == 1 + 10 + 1 + 1
    assert any("✗ t30" in line for line in lines)
    assert any("▸ t35" in line for line in lines)
    assert lines[-2].split() == ["├─", "…", "30", "more", "30", "succeeded"]
    assert " ".join(lines[-1].split()) == "└─ ◦ join pending after t0, t1, t2 and 37 more"
    assert len(drawn([step("root"), *many, join], every=True)) == 42


def test_instances_stand_below_their_step() -> None:
    own = [
        step(f"each[{number}]", state="SUCCEEDED", parent="each", instance=number, index=0, item_json=str(number))
        for number in range(30)
    ]
    own[7].state = run_pb2.STEP_STATE_FAILED
    lines = drawn([step("each", state="FAILED", instances=30), *own, step("next", "each")])
    assert [line.split()[:3] for line in lines] == [
        ["✗", "each", "failed"],
        ["✗", "each[7]", "failed"],
        ["…", "29", "more"],
        ["◦", "next", "pending"],
    ]
    assert len(drawn([step("each", instances=30), *own], every=True)) == 31


def test_a_kept_result_has_no_bar() -> None:
    kept = step("a", state="SUCCEEDED", took=(-500, -400), source_run="0192")
    assert "━" not in drawn([kept], names={"0192": "nightly#1"})[0]


@pytest.fixture
def forked(daemon: FakeDaemon) -> RunRecord:
    daemon.add_workflow("nightly")
    record = daemon.add_run("nightly", steps=["fetch", "build", "lint"])
    for one in record.run.steps[1:]:
        one.depends_on.append("fetch")
    return record


def test_show_on_a_terminal(on_terminal: OnTerminal, daemon: FakeDaemon, forked: RunRecord) -> None:
    daemon.step(forked, "fetch", run_pb2.STEP_STATE_RUNNING)
    shown = on_terminal("--server", daemon.address, "show", "nightly", columns=80)
    assert shown.end() == 0
    lines = shown.text.splitlines()
    assert any(line.startswith("▸ fetch") for line in lines)
    assert any(line.startswith("├─ ◦ build") for line in lines)
    table = on_terminal("--server", daemon.address, "show", "nightly", "--no-tree", columns=80)
    assert table.end() == 0
    assert any(line.startswith("STEP ") for line in table.text.splitlines())


def test_watch_on_a_terminal(on_terminal: OnTerminal, daemon: FakeDaemon, forked: RunRecord) -> None:
    watched = on_terminal("--server", daemon.address, "watch", "nightly", columns=80)
    watched.wait_for("├─ ◦ build")
    daemon.step(forked, "fetch", run_pb2.STEP_STATE_RUNNING)
    watched.wait_for("▸ fetch")
    daemon.step(forked, "build", run_pb2.STEP_STATE_RUNNING, child_run=daemon.add_run("cleanup").run.id)
    watched.wait_for("child run cleanup#1")
    daemon.step(forked, "fetch", run_pb2.STEP_STATE_SUCCEEDED)
    daemon.finish(forked, run_pb2.RUN_STATE_SUCCEEDED)
    assert watched.end() == 0
    assert "✓ fetch" in watched.text
    assert any("nightly#1 succeeded after" in line for line in watched.text.splitlines())
