"""The documents match the product: links, and every field, key, command and exit code."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

from toban.cli.exits import Exit
from toban.definition.schema.definition_schema import JobInput, JobsInput, ParamInput, RetentionInput, WorkflowInput
from toban.definition.schema.field_check import written_names
from toban.definition.schema.start_schema import ScheduleInput, TriggerInput
from toban.definition.schema.step_schema import (
    CheckInput,
    InputInput,
    OutputInput,
    ResourcesInput,
    RetryInput,
    SandboxInput,
    StepInput,
)
from toband import config
from toband.config.keys import FILE_ONLY, declared_in

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text("utf-8")):
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", found.read_text("utf-8"), re.MULTILINE)
            assert anchor[1:] in {heading.lower().replace(" ", "-") for heading in headings}


def test_every_field_of_the_format_is_described() -> None:
    rows = set(re.findall(r"`([a-z_]+)`", read("docs/definition.md")))
    steps = (StepInput, CheckInput, ResourcesInput, SandboxInput, RetryInput, InputInput, OutputInput)
    triggers = (ScheduleInput, TriggerInput)
    models = (WorkflowInput, RetentionInput, ParamInput, JobsInput, JobInput, *triggers, *steps)
    assert {name for model in models for name in written_names(model)} <= rows


def test_every_exit_code_is_described() -> None:
    codes = re.findall(r"^\| (\d+) \|", read("docs/cli.md"), re.MULTILINE)
    assert [int(code) for code in codes] == sorted(Exit)


def test_every_setting_is_described() -> None:
    text = read("docs/configuration.md")
    for key in (each.key for each in config.load(None, {"HOME": "/home/somebody"}, {}).shown()):
        variable = "" if key in FILE_ONLY else f"`TOBAN_{key.replace('.', '_').upper()}` "
        assert f"| `{key}` | {variable}|" in text
        change = "live" if declared_in(key).live else "restart"
        assert re.search(rf"^\| `{re.escape(key)}` \|.*\| {change} \|$", text, re.MULTILINE), key


def test_every_call_is_listed() -> None:
    text = read("docs/api.md")
    modules = [import_module(f"toban.v1.{path.stem}") for path in ROOT.glob("client/toban/v1/*_pb2.py")]
    services = [each for module in modules for each in module.DESCRIPTOR.services_by_name.values()]
    assert {"WorkflowService", "AccessService"} <= {each.name for each in services}
    for service in services:
        calls = ", ".join(method.name for method in service.methods)
        assert re.search(rf"^\| {service.name} \| {calls}(;[^|]*)? \|$", text, re.MULTILINE), service.name


def test_every_page_is_in_the_index() -> None:
    index = read("docs/README.md")
    assert [
        path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md" and f"({path.name}" not in index
    ] == []


def test_the_first_screen_is_short() -> None:
    """What Toban is in one sentence, what makes it different in five bullets, and two commands."""
    title, sentence, bullets, commands = read("README.md").split("\n\n")[:4]
    assert title == "# Toban"
    assert len(re.findall(r"\.(?:\s|$)", sentence)) == 1
    assert len(re.findall(r"^- \*\*", bullets, re.MULTILINE)) == 5
    assert len(re.findall(r"^scripts/", commands, re.MULTILINE)) == 2


def test_every_script_is_named() -> None:
    text = read("CONTRIBUTING.md")
    for path in (ROOT / "scripts").iterdir():
        if path.is_file():
            assert f"`scripts/{path.name}`" in text


def test_every_reason_of_an_error_is_described() -> None:
    source = read("daemon/toband/api/error_status.py")
    reasons = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', source))
    assert "RUN_NOT_FOUND" in reasons
    described = set(re.findall(r"`([A-Z_]+)`", read("docs/api.md")))
    assert reasons <= described


def test_each_listed_behaviour_has_its_file_and_only_that() -> None:
    """The list of behaviours in the architecture: thirty or more, each with a symbol that one file alone defines."""
    rows = re.findall(r"^\| (.+?) \| `(\S+\.py)` \| `(\w+)` \|$", read("docs/architecture.md"), re.MULTILINE)
    assert len(rows) >= 30
    defined = defaultdict(set)
    for package in ("client/toban", "daemon/toband"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    defined[node.name].add(str(path.relative_to(ROOT)))
    for behaviour, file, symbol in rows:
        assert defined[symbol] == {file}, behaviour
