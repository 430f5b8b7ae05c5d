"""Makes a case that went wrong as small as it can be and still go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any


def smallest(case: dict[str, Any], wrong: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Takes away whatever can be taken away, until nothing can."""
    again = True
    while again:
        again = False
        for less in _smaller(case):
            if wrong(less):
                case, again = less, True
                break
    return case


def _smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in case.get("finally", {}):
        yield _without(case, {name})
    names = list(case["steps"])
    for count in (len(names) // 2, len(names) // 4, 1):
        for start in range(0, len(names), count or 1):
            gone = set(names[start : start + count])
            if gone and len(gone) < len(names):
                yield _without(case, gone)
    for part in ("concurrency", "timeout", "finally_timeout", "restart_every", "scope"):
        if case.get(part) is not None:
            yield {key: value for key, value in case.items() if key != part}
    for part in ("events", "outcomes"):
        for key in list(case.get(part, {})):
            less = deepcopy(case)
            del less[part][key]
            yield less
    for name, said in case.get("outcomes", {}).items():
        for position, _ in enumerate(said):
            less = deepcopy(case)
            del less["outcomes"][name][position]
            yield less
    for part in ("steps", "finally"):
        for name, spec in case.get(part, {}).items():
            for key in spec:
                less = deepcopy(case)
                del less[part][name][key]
                yield less


def _without(case: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    less = deepcopy(case)
    for part in ("steps", "finally"):
        less[part] = {name: spec for name, spec in less.get(part, {}).items() if name not in gone}
        for spec in less[part].values():
            spec["depends_on"] = [name for name in spec.get("depends_on", []) if name not in gone]
    if "scope" in less:
        less["scope"] = [name for name in less["scope"] if name not in gone]
    for part in ("outcomes", "events"):
        less[part] = {
            key: value
            for key, value in less.get(part, {}).items()
            if not gone & {_step_of(str(key)), _step_of(str(value).rpartition(" ")[2])}
        }
    return less


def _step_of(name: str) -> str:
    return name.partition("[")[0].removesuffix(".check")
