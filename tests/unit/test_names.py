"""One name, one meaning: public classes and modules of the product that share a name mean the same thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PRODUCT = ("client/toban", "daemon/toband")
GENERATED = ("client/toban/v1/", "daemon/toband/store/sql/migrations/versions/")

# Names that layers share for the same thing: how many definitions each has, and why. Two things get two names.
CLASSES = {
    "Artifact": (2, "domain and SDK: the files of one output of a step"),
    "AttemptFile": (2, "POSIX and Windows: the file of an attempt"),
    "DefinitionText": (2, "engine and SDK: a text with definitions to apply"),
    "ErrorClass": (2, "definition and SDK: how a failure may be treated"),
    "LogLevel": (2, "domain and SDK: importance of a line of the log"),
    "Progress": (2, "domain and SDK: progress that a step reported"),
    "Run": (2, "domain and SDK: a run"),
    "RunState": (2, "domain and SDK: state of a run"),
    "Shim": (2, "POSIX and Windows: the process of one attempt"),
    "SkipReason": (2, "domain and SDK: why a step was skipped"),
    "Step": (2, "definition and SDK: a step, as it is written and as it runs"),
    "StepState": (2, "domain and SDK: state of a step"),
    "Trigger": (2, "domain and SDK: what started a run"),
    "WaitingFor": (2, "domain and SDK: what a run or a step waits for"),
    "Workflow": (2, "definition and toban.workflow: a workflow, as a value and as Python functions that describe it"),
}
MODULES = {
    "__main__": (2, "the programs toban and toband"),
    "access": (5, "port, store, engine, SDK and command"),
    "artifacts": (3, "port, adapter and SDK"),
    "attempt_file": (2, "POSIX and Windows"),
    "attempts": (2, "port and store"),
    "audit": (2, "port and command"),
    "awaited_files": (2, "port and adapter"),
    "backfill": (2, "engine and command"),
    "dead_letters": (5, "port, store, engine, SDK and command"),
    "definition_files": (2, "port and adapter"),
    "definitions": (3, "port, store and engine"),
    "errors": (5, "the exceptions of a package"),
    "event_triggers": (2, "definition and store: the triggers of a workflow"),
    "events": (5, "port, store, engine, SDK and command"),
    "health": (2, "port and engine"),
    "hooks": (5, "port, store, engine, SDK and command"),
    "host": (2, "port and adapter"),
    "ids": (2, "port and store"),
    "jobs": (2, "SDK and command"),
    "lock_leftovers": (2, "store and engine"),
    "locks": (2, "port and command"),
    "logs": (4, "port, adapter, SDK and command"),
    "ownership": (2, "port and store"),
    "processes": (2, "port and command: processes of attempts"),
    "retention": (3, "port, store and engine"),
    "run_statistics": (2, "port and store"),
    "runs": (5, "port, store, engine, SDK and command"),
    "sandbox": (2, "port and adapter"),
    "schedules": (5, "port, store, engine, SDK and command"),
    "secrets": (5, "port, store, engine, SDK and command"),
    "sessions": (2, "engine and command"),
    "shim": (3, "POSIX and Windows, and their package"),
    "store": (2, "port and adapter"),
    "summaries": (2, "port and store"),
    "system": (2, "SDK and command"),
    "tokens": (2, "engine and command"),
    "watched_paths": (2, "port and adapter"),
    "workflow": (2, "definition and toban.workflow"),
    "workflows": (2, "SDK and command"),
}


def public_classes(source: str) -> Iterator[str]:
    """Public classes of a module, without those inside of functions and classes."""
    waiting: list[ast.stmt] = list(ast.parse(source).body)
    while waiting:
        match waiting.pop():
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield name
            case ast.If() | ast.Try() as block:
                waiting += [*block.body, *block.orelse]
            case _:
                pass


def module_name(path: str) -> str:
    """The last part of the name that imports use: for a package the name of its directory."""
    where = PurePosixPath(path)
    return where.parent.name if where.name == "__init__.py" else where.stem


def shared(names: Iterable[tuple[str, str]], allowed: Mapping[str, tuple[int, str]]) -> dict[str, list[str]]:
    """The files of each name that is not defined as often as it is allowed. `names` are names with their files."""
    found = defaultdict(list)
    for name, path in names:
        found[name].append(path)
    return {
        name: found[name]
        for name in sorted(found.keys() | allowed.keys())
        if len(found[name]) != allowed.get(name, (1, ""))[0]
    }


def product_files() -> list[str]:
    files = sorted(file.relative_to(ROOT).as_posix() for part in PRODUCT for file in (ROOT / part).rglob("*.py"))
    return [path for path in files if not path.startswith(GENERATED)]


def test_public_classes_share_a_name_only_for_the_same_thing() -> None:
    names = [(name, path) for path in product_files() for name in public_classes((ROOT / path).read_text("utf-8"))]
    assert len(names) > 500
    assert shared(names, CLASSES) == {}, "rename one of them, or say in CLASSES why they are the same"


def test_modules_share_a_name_only_for_the_same_thing() -> None:
    assert shared([(module_name(path), path) for path in product_files()], MODULES) == {}, (
        "rename one of them, or say in MODULES why they are the same"
    )


def test_public_classes_are_found() -> None:
    source = (
        "class A: pass\nclass _B: pass\nif x:\n    class C: pass\nelse:\n    class D: pass\ndef f():\n    class E: pass"
    )
    assert sorted(public_classes(source)) == ["A", "C", "D"]


def test_a_name_that_is_used_more_or_less_often_than_allowed_is_found() -> None:
    names = [("A", "1"), ("A", "2"), ("B", "1"), ("C", "1"), ("C", "2"), ("C", "3"), ("D", "1"), ("D", "2")]
    allowed = {"B": (2, "was renamed"), "C": (2, "a third"), "D": (2, "the same thing"), "E": (2, "removed")}
    assert shared(names, allowed) == {"A": ["1", "2"], "B": ["1"], "C": ["1", "2", "3"], "E": []}


def test_a_package_has_the_name_of_its_directory() -> None:
    assert module_name("a/b/c.py") == "c"
    assert module_name("a/b/__init__.py") == "b"
