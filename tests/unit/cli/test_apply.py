from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban import limits
from toban.definition.schema.definition_schema import WorkflowInput
from toban.definition.schema.field_check import written_names
from toban.definition.schema.step_schema import StepInput
from toban.definition.schema.unsupported_fields import UNSUPPORTED_STEP_FIELDS, UNSUPPORTED_WORKFLOW_FIELDS
from toban.sdk.address import Address
from toban.v1 import workflow_pb2

from .conftest import Cli


def definition(name: str, command: str = "echo hello") -> str:
    return f"name: {name}\ndescription: a test\nsteps:\n  one:\n    run: {command}\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    files = {
        "b.yaml": definition("bb"),
        "a.yml": definition("aa") + "---\n" + definition("ac"),
        "c.json": '{"name": "cc", "description": "a test", "steps": {"one": {"run": "true"}}}',
        "notes.txt": "not a definition",
        ".#b.yaml": "an editor's own",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "deeper.yaml").mkdir()
    return tmp_path


def test_created_unchanged_updated(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(definition("nightly"))
    assert cli("apply", str(file)).out == "nightly created (version 1)\n"
    assert cli("apply", str(file)).out == "nightly unchanged (version 1)\n"
    file.write_text(definition("nightly", "echo other"))
    assert cli("apply", str(file)).out == "nightly updated (version 2)\n"
    assert daemon.calls == {"ApplyDefinitions": 3}
    stored = daemon.workflows["nightly"].definition
    assert stored.source == definition("nightly", "echo other")
    assert stored.base_dir == str(tmp_path)


def test_a_directory_means_its_definitions_in_order(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    result = cli("apply", str(directory), "-o", "name")
    assert (result.code, result.out, result.err) == (0, "aa\nac\nbb\ncc\n", "")
    assert daemon.workflows["ac"].definition.source == definition("ac")


def test_a_file_named_twice_is_applied_once(cli: Cli, directory: Path) -> None:
    result = cli("apply", str(directory / "b.yaml"), str(directory), "-o", "name")
    assert sorted(result.out.split()) == ["aa", "ac", "bb", "cc"]


def test_a_relative_file_has_an_absolute_directory(
    cli: Cli, daemon: FakeDaemon, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    assert cli("apply", "b.yaml").code == 0
    assert daemon.workflows["bb"].definition.base_dir == str(directory)


def test_standard_input_has_no_directory(cli: Cli, daemon: FakeDaemon) -> None:
    result = cli("apply", "-", stdin=definition("piped").encode())
    assert result.out == "piped created (version 1)\n"
    assert daemon.workflows["piped"].definition.base_dir == ""


def test_the_base_directory_can_be_given(
    cli: Cli, daemon: FakeDaemon, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    result = cli("apply", "-", "--base-dir", ".", stdin=definition("piped").encode())
    assert (result.code, result.err) == (0, "")
    assert daemon.workflows["piped"].definition.base_dir == str(directory)
    changed = cli("apply", "-", "--base-dir", "/srv/work", "--dry-run", stdin=definition("piped").encode())
    assert f"base directory: {directory} -> /srv/work" in changed.out
    assert cli("apply", str(directory / "b.yaml"), "--base-dir", "/srv/work").code == 0
    assert daemon.workflows["bb"].definition.base_dir == "/srv/work"
    assert cli("apply", str(directory), "--base-dir", "/srv/work", "--prune").code == 2


def test_over_tcp_the_base_directory_is_one_of_the_other_machine(
    cli: Cli, daemon: FakeDaemon, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "local", property(lambda self: False))
    refused = cli("apply", str(directory / "b.yaml"), "--base-dir", "work")
    assert refused.code == 2
    assert "hint: give the absolute path on that machine" in refused.err
    assert cli("apply", str(directory / "b.yaml"), "--base-dir", "/srv/work").code == 0
    assert daemon.workflows["bb"].definition.base_dir == "/srv/work"


def test_a_daemon_that_may_be_elsewhere_gets_no_directory(
    cli: Cli, daemon: FakeDaemon, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "local", property(lambda self: False))
    result = cli("apply", str(directory / "b.yaml"))
    assert result.err.startswith("no base directory: relative paths start at the empty directory of each run")
    assert daemon.workflows["bb"].definition.base_dir == ""


def test_for_programs(cli: Cli, directory: Path) -> None:
    assert cli("apply", str(directory / "b.yaml"), "-o", "json").data == [
        {
            "name": "bb",
            "kind": "workflow",
            "outcome": "created",
            "version": 1,
            "warnings": [],
            "updated_workflows": [],
        }
    ]


def test_every_problem_of_every_file_is_told_and_nothing_is_sent(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    (directory / "x.yaml").write_text("name: x\ndescription: d\nsteps:\n  a: {run: ls, foo: 1}\n")
    (directory / "y.yaml").write_text("name: [\n")
    result = cli("apply", str(directory))
    assert result.code == 7
    assert result.out == ""
    lines = result.err.splitlines()
    assert lines[0].startswith(f"{directory}/x.yaml:4:16: steps.a.foo: ")
    assert any(line.startswith(f"{directory}/y.yaml:") for line in lines)
    assert lines[-1].startswith("toban: cannot apply the definitions: ")
    assert daemon.calls.total() == 0


def test_one_name_in_two_files(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    (directory / "z.yaml").write_text("# again\n" + definition("bb"))
    result = cli("apply", str(directory))
    assert result.code == 7
    assert f"{directory}/z.yaml:1:1: name: 'bb' is defined twice: also in {directory}/b.yaml:1" in result.err
    assert daemon.workflows == {}


def test_what_only_the_daemon_knows_to_be_wrong(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    (directory / "a.yml").write_text(definition("aa") + "---\n" + definition("ac", "BROKEN"))
    result = cli("apply", str(directory))
    assert result.code == 7
    # The fifth line of the second document, which begins with the seventh of the file.
    assert result.err.splitlines() == [
        f"{directory}/a.yml:11:5: steps.one.run: found BROKEN, expected a command",
        "toban: cannot apply the definitions: 1 problem found",
    ]
    assert daemon.workflows == {}


def test_a_schedule_that_has_run_out_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "once.yaml"
    file.write_text("schedule: {at: 2020-01-01T00:00:00Z}\n" + definition("once"))
    warning = f"{file}:1:1: warning: schedule: 2020-01-01 00:00+00:00 is in the past: the schedule will never run"
    for verb in ("validate", "apply"):
        result = cli(verb, str(file))
        assert result.code == 0
        assert warning in (result.out + result.err).splitlines()


def test_warnings_do_not_stop_it(cli: Cli, directory: Path) -> None:
    result = cli("apply", "-", stdin=b"name: x\nsteps: {one: {run: ls}}\n")
    assert result.code == 0
    assert result.err.startswith("<stdin>:1:1: warning: ")


def test_a_dry_run_shows_the_difference_and_stores_nothing(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    daemon.add_workflow("aa", definition("aa"), base_dir=str(directory))
    daemon.add_workflow("bb", definition("bb", "old"), base_dir="/elsewhere")
    result = cli("apply", "--dry-run", str(directory))
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "aa unchanged (version 1)"
    assert "ac would be created (version 1)" in lines
    begin = lines.index("bb would be updated (version 2)")
    assert lines[begin + 1 : begin + 11] == [
        f"base directory: /elsewhere -> {directory}",
        "--- bb (version 1)",
        "+++ bb (version 2)",
        "@@ -2,4 +2,4 @@",
        " description: a test",
        " steps:",
        "   one:",
        "-    run: old",
        "+    run: echo hello",
        "cc would be created (version 1)",
    ]
    assert daemon.calls == {"ApplyDefinitions": 1, "GetWorkflow": 1}
    assert "ac" not in daemon.workflows
    data = cli("apply", "--dry-run", str(directory), "-o", "json").data
    assert [one["outcome"] for one in data] == ["unchanged", "created", "updated", "created"]
    assert all(one["dry_run"] for one in data)
    assert "+    run: echo hello" in data[2]["diff"]


def test_somebody_was_faster(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    def faster() -> None:
        daemon.on_call.clear()
        daemon.store_workflow("bb", workflow_pb2.Definition(source="name: bb"))

    daemon.on_call["ApplyDefinitions"] = faster
    assert cli("apply", str(directory / "b.yaml")).out == "bb updated (version 2)\n"


def test_a_directory_too_large_for_one_call(cli: Cli, daemon: FakeDaemon, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.yaml").write_text(definition(f"w{number}") + "#" * (limits.MAX_MESSAGE_BYTES // 4))
    result = cli("apply", str(tmp_path))
    assert result.code == 2
    most = "at most 1,000 definitions and 4 MiB in one call"
    assert result.err.splitlines() == [
        f"toban: cannot apply the definitions: found 5 texts with 5 MiB, expected {most}: split them",
        "hint: apply fewer files at a time, or let the daemon read them: see `definitions` in its configuration",
    ]
    assert daemon.workflows == {}


@pytest.mark.parametrize("verb", ["apply", "validate"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.yaml", "No such file or directory"),
        ("empty", "the directory has no definition files"),
        ("socket", ""),
        ("nul\0l.yaml", ""),
        ("missing.py", "No such file or directory"),
    ],
)
def test_files_that_cannot_be_read(cli: Cli, tmp_path: Path, verb: str, name: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    if name == "socket":
        (tmp_path / "socket").symlink_to("socket")
    result = cli(verb, str(tmp_path / name))
    assert result.code == 2
    assert result.out == ""
    first = result.err.splitlines()[0]
    assert first.startswith("toban: cannot read ")
    assert reason in first


@pytest.mark.skipif(os.access("/", os.W_OK), reason="everything is open to root")
def test_a_file_that_is_closed_to_us(cli: Cli, directory: Path) -> None:
    (directory / "b.yaml").chmod(0)
    result = cli("apply", str(directory))
    assert result.code == 2
    assert "Permission denied" in result.err


@pytest.mark.parametrize("verb", ["apply", "validate"])
def test_no_file_at_all(cli: Cli, verb: str) -> None:
    result = cli(verb)
    assert result.code == 2
    assert "no file given" in result.err


def test_the_daemon_is_down(cli: Cli, daemon: FakeDaemon, directory: Path) -> None:
    daemon.stop()
    result = cli("apply", str(directory))
    assert result.code == 3
    assert result.err.startswith("toban: cannot apply the definitions: no daemon answers at ")


def test_validate_needs_no_daemon(bare: Cli, directory: Path) -> None:
    result = bare("validate", str(directory))
    assert result.code == 0
    assert result.out.splitlines() == [
        f"{directory}/a.yml: aa is valid",
        f"{directory}/a.yml: ac is valid",
        f"{directory}/b.yaml: bb is valid",
        f"{directory}/c.json: cc is valid",
    ]
    assert bare("validate", str(directory), "-o", "name").out == "aa\nac\nbb\ncc\n"
    assert bare("validate", str(directory), "-o", "json").data == []


def test_validate_prints_derived_ids(bare: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "id: a\nname: 夜間\ndescription: d\nsteps: [{name: 取得, run: x}, {name: b, run: x}]\n", encoding="utf-8"
    )
    assert bare("validate", str(file)).out.splitlines() == [
        f"{file}: a is valid",
        f"{file}: a: the id of the step 取得 is step-03ecfee0",
    ]


TWENTY_MISTAKES = """\
name: twenty
description: one on each line
isEnabled: true
tags: {a: b}
max_instances: 2
tasks: []
frobnicate: 1
priority: 101
on: {events: [A], event: B}
steps:
  a: {run: x, needs: [b]}
  b: {run: x, if: "true"}
  c: {run: x, cwd: /tmp}
  d: {script: x, job_type: shell, target: x}
  e: {run: x, step_order: 5}
  f: {run: x, retries: 3}
  g: {run: x, timeoutSec: 3}
  i: {run: x, colour: red}
  j: {run: x, zigzag: round}
  k: {run: x, allow_failure: true}
  l: {run: x, on_failure: explode}
  m: {run: x, depends_on: [データ]}
  n: {run: x, created_at: now}
  データ: {run: x}
"""
FIELDS = ", ".join(name for name in written_names(WorkflowInput) if name not in UNSUPPORTED_WORKFLOW_FIELDS)
STEP_FIELDS = ", ".join(name for name in StepInput.model_fields if name not in UNSUPPORTED_STEP_FIELDS)
TWENTY_LINES = f"""\
3:1: isEnabled: unknown field "isEnabled": write enabled
4:1: tags: unknown field "tags": write labels
5:1: max_instances: unknown field "max_instances": write max_active_runs
6:1: tasks: unknown field "tasks": write steps
7:1: frobnicate: unknown field "frobnicate": remove it (known: {FIELDS})
8:11: priority: expected at most 100, found the number 101
9:6: on.events: unknown field "events": write event
11:15: steps.a.needs: unknown field "needs": write depends_on
12:15: steps.b.if: unknown field "if": write when
13:15: steps.c.cwd: unknown field "cwd": write workspace
14:7: steps.d.script: unknown field "script": write run
15:15: steps.e.step_order: unknown field "step_order": write depends_on
16:15: steps.f.retries: unknown field "retries": write max_retries
17:15: steps.g.timeoutSec: unknown field "timeoutSec": write timeout
18:15: steps.i.colour: unknown field "colour": remove it (known: {STEP_FIELDS})
19:15: steps.j.zigzag: unknown field "zigzag": remove it (known: see line 18)
20:15: steps.k.allow_failure: unknown field "allow_failure": write on_failure: continue
21:27: steps.l.on_failure: expected abort, continue, skip or retry, found "explode"
23:15: steps.n.created_at: unknown field "created_at": remove it: the daemon records when a version was stored
24:3: steps.データ: "データ" is not a valid id: write an id as the key, such as step-16773842, and this as the name
"""


def test_twenty_mistakes_are_twenty_lines(bare: Cli, tmp_path: Path) -> None:
    file = tmp_path / "twenty.yaml"
    file.write_text(TWENTY_MISTAKES, encoding="utf-8")
    result = bare("validate", str(file))
    assert result.code == 7
    assert result.out.splitlines() == [f"{file}:{line}" for line in TWENTY_LINES.splitlines()]
    assert len(TWENTY_LINES.splitlines()) == 20
    assert result.err.startswith("toban: cannot accept the definitions: 20 problems found")


@pytest.mark.parametrize("text", [b"name: [", b"\xff\xfe\xfa", b"", b"- a\n- b\n", b"name: x\nname: y\n", b"%"])
def test_validate_finds_what_is_no_definition(bare: Cli, text: bytes) -> None:
    result = bare("validate", "-", stdin=text)
    assert result.code == 7
    assert result.out.startswith("<stdin>:1:") or result.out.startswith("<stdin>:2:")
    assert result.err.startswith("toban: cannot accept the definitions: ")
    problems = bare("validate", "-", "-o", "json", stdin=text).data
    assert {"file", "line", "column", "path", "message", "warning"} == set(problems[0])


def test_the_schema(bare: Cli) -> None:
    result = bare("validate", "--schema")
    assert result.code == 0
    assert "properties" in result.data or "$defs" in result.data or "anyOf" in result.data


JOB = "jobs:\n  upload:\n    description: to the archive\n    run: {command}\n"
USER = "name: user\ndescription: a test\nsteps:\n  put: {job: upload}\n"


@pytest.fixture
def with_job(tmp_path: Path) -> Path:
    """A workflow that comes before the job that it uses."""
    (tmp_path / "a-user.yaml").write_text(USER)
    (tmp_path / "jobs.yaml").write_text(JOB.format(command="echo put"))
    return tmp_path


def test_jobs_come_first(cli: Cli, daemon: FakeDaemon, with_job: Path) -> None:
    result = cli("apply", str(with_job))
    assert (result.code, result.err) == (0, "")
    assert result.out == "job upload created (version 1)\nuser created (version 1)\n"
    assert daemon.jobs["upload"].definition.source == JOB.format(command="echo put")
    assert daemon.jobs["upload"].definition.base_dir == str(with_job)
    again = cli("apply", str(with_job))
    assert again.out == "job upload unchanged (version 1)\nuser unchanged (version 1)\n"


def test_a_job_that_others_use(cli: Cli, daemon: FakeDaemon, with_job: Path) -> None:
    cli("apply", str(with_job))
    daemon.jobs["upload"].used_by.append("user")
    (with_job / "jobs.yaml").write_text(JOB.format(command="echo other"))
    dry = cli("apply", str(with_job), "--dry-run").out.splitlines()
    assert dry[:2] == [
        "job upload would be updated (version 2)",
        "  user would get a new version with it",
    ]
    assert "+    run: echo other" in dry
    result = cli("apply", str(with_job / "jobs.yaml"), "-o", "json")
    assert result.data[0]["updated_workflows"] == ["user"]
    assert result.data[0]["kind"] == "job"


def test_a_job_that_only_the_daemon_has(cli: Cli, daemon: FakeDaemon, with_job: Path) -> None:
    file = str(with_job / "a-user.yaml")
    missing = cli("apply", file)
    assert missing.code == 7
    assert missing.err.startswith(f"{file}:4:")
    assert "upload" in missing.err.splitlines()[0]
    assert "warning" not in missing.err.splitlines()[0]
    daemon.add_job("upload")
    result = cli("apply", file)
    assert (result.code, result.err) == (0, "")
    assert result.out == "user created (version 1)\n"


def test_validate_knows_the_jobs_of_all_files(bare: Cli, with_job: Path) -> None:
    both = bare("validate", str(with_job))
    assert (both.code, both.out.splitlines()) == (
        0,
        [
            f"{with_job / 'a-user.yaml'}: user is valid",
            f"{with_job / 'jobs.yaml'}: job upload is valid",
        ],
    )
    assert bare("validate", str(with_job), "-o", "name").out == "user\nupload\n"
    alone = bare("validate", str(with_job / "a-user.yaml"))
    assert alone.code == 0
    first, second = alone.out.splitlines()
    assert "warning: " in first
    assert second.endswith("user is valid, except for the unknown upload")
    (with_job / "jobs.yaml").write_text(JOB.format(command="echo {{ params.x }}"))
    assert bare("validate", str(with_job)).code == 7


def test_a_workflow_and_a_job_of_one_name(cli: Cli, with_job: Path) -> None:
    (with_job / "z.yaml").write_text(definition("upload"))
    result = cli("apply", str(with_job))
    assert result.code == 7
    assert "'upload' is defined twice: also in " in result.err


def test_prune(cli: Cli, daemon: FakeDaemon, with_job: Path) -> None:
    here = str(with_job)
    daemon.add_workflow("gone", base_dir=here)
    daemon.add_workflow("elsewhere", base_dir="/srv")
    daemon.add_workflow("piped")
    daemon.add_workflow("of-a-file", base_dir=here).owner_kind = workflow_pb2.OWNER_KIND_FILE
    daemon.add_job("old", base_dir=here)
    dry = cli("apply", here, "--prune", "--dry-run")
    assert dry.out.splitlines()[-2:] == [
        "gone would be deleted (version 1)",
        "job old would be deleted (version 1)",
    ]
    assert "gone" in daemon.workflows
    result = cli("apply", here, "--prune", "-o", "name")
    assert result.out.split() == ["upload", "user", "gone", "old"]
    assert set(daemon.workflows) == {"user", "elsewhere", "piped", "of-a-file"}
    assert set(daemon.jobs) == {"upload"}


@pytest.mark.parametrize("what", ["jobs.yaml", "-"])
def test_prune_needs_directories(cli: Cli, daemon: FakeDaemon, with_job: Path, what: str) -> None:
    path = what if what == "-" else str(with_job / what)
    result = cli("apply", str(with_job), path, "--prune")
    assert result.code == 2
    assert "hint: give --prune directories, and Python files, only" in result.err
    assert daemon.calls.total() == 0


def test_prune_needs_a_daemon_on_this_machine(
    cli: Cli, daemon: FakeDaemon, with_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "local", property(lambda self: False))
    result = cli("apply", str(with_job), "--prune")
    assert result.code == 2
    assert "another machine" in result.err
    assert daemon.workflows == {}


IN_PYTHON = """
import helper_of_it
from toban.workflow import add_step, step, workflow

print("imported")

@step
def one(n: int) -> int:
    return n

@workflow
def nightly(n: int = 1) -> None:
    "A test."
    one(n)

@workflow(description="a test", labels={"by": helper_of_it.NAME})
def weekly() -> None:
    add_step("two", run="echo two")
"""


@pytest.fixture
def in_python(directory: Path) -> Path:
    (directory / "helper_of_it.py").write_text('NAME = "me"\n')
    (directory / "flows.py").write_text(IN_PYTHON)
    return directory / "flows.py"


def test_workflows_in_python(cli: Cli, daemon: FakeDaemon, in_python: Path) -> None:
    result = cli("apply", str(in_python))
    assert (result.code, result.out) == (0, "nightly created (version 1)\nweekly created (version 1)\n")
    assert result.err == "imported\n"
    stored = daemon.workflows["nightly"].definition
    assert stored.base_dir == str(in_python.parent)
    assert "target: flows:one" in stored.source
    assert "flows" not in sys.modules
    assert str(in_python.parent) not in sys.path
    assert cli("validate", str(in_python)).out.splitlines() == [
        f"{in_python}: nightly is valid",
        f"{in_python}: weekly is valid",
    ]
    in_python.write_text(IN_PYTHON.replace("echo two", "echo 2"))
    dry = cli("apply", str(in_python), "--dry-run", "-o", "json")
    assert [each["outcome"] for each in json.loads(dry.out)] == ["unchanged", "updated"]
    # Nothing is run by naming the directory; with --prune the file is named too.
    kept = cli("apply", str(in_python.parent), str(in_python), "--prune", "-o", "name")
    assert sorted(kept.out.split()) == ["aa", "ac", "bb", "cc", "nightly", "weekly"]
    gone = cli("apply", str(in_python.parent), "--prune", "--dry-run")
    assert "nightly would be deleted" in gone.out


def test_a_daemon_that_may_be_elsewhere_gets_no_directory_of_python_files(
    cli: Cli, daemon: FakeDaemon, in_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Address, "local", property(lambda self: False))
    assert cli("apply", str(in_python)).code == 0
    assert daemon.workflows["nightly"].definition.base_dir == ""


def test_mistakes_in_python_have_its_lines(cli: Cli, daemon: FakeDaemon, in_python: Path) -> None:
    in_python.write_text(IN_PYTHON.replace("one(n)", 'one("x", n)').replace("echo two", "echo {{ nothing }}"))
    result = cli("apply", str(in_python))
    assert result.code == 7
    lines = result.err.splitlines()
    assert lines[1].startswith(f"{in_python}:14:1: steps.one: cannot call one(n: int) -> int: too many positional")
    assert lines[2].startswith(f"{in_python}:18:1: steps.two.run: ")
    assert lines[3:] == ["toban: cannot apply the definitions: 2 problems found"]
    in_python.write_text(IN_PYTHON.replace("echo two", "BROKEN").replace('"two"', '"one"'))
    assert cli("apply", str(in_python)).err.splitlines()[1:] == [
        f"{in_python}:18:1: steps.one.run: found BROKEN, expected a command",
        "toban: cannot apply the definitions: 1 problem found",
    ]
    in_python.write_text(IN_PYTHON.replace("one(n)", "n + 1"))
    said = f"{in_python}:14:1: the value of params.n is known only when a run starts"
    assert said in cli("validate", str(in_python)).out
    in_python.write_text(
        IN_PYTHON + IN_PYTHON.replace("def nightly", "def other").replace("(descr", '(name="nightly", descr')
    )
    assert f"'nightly' is defined twice: also in {in_python}" in cli("apply", str(in_python)).err
    assert daemon.workflows == {}


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import nothing_there", 7, "ModuleNotFoundError: No module named 'nothing_there'"),
        ("raise SystemExit(3)", 7, "SystemExit: 3"),
        ("def f(:", 7, "SyntaxError"),
        ("from toban.workflow import workflow", 2, "it defines no workflow"),
    ],
)
def test_python_that_cannot_be_used(bare: Cli, in_python: Path, text: str, code: int, said: str) -> None:
    in_python.write_text(f"{text}\n")
    result = bare("validate", str(in_python))
    assert (result.code, result.out) == (code, "")
    assert f"cannot read {in_python}" in result.err
    assert said in result.err
