"""The dependency graph of steps: order and cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

MAX_CYCLES = 20


class StepGraph:
    """Steps and their dependencies; only dependencies that exist count."""

    def __init__(self, dependencies: Mapping[str, Sequence[str]]) -> None:
        self._dependencies = {
            step: [name for name in names if name in dependencies and name != step]
            for step, names in dependencies.items()
        }
        self._order: list[str] | None = None
        self._bits: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def cycles(self) -> list[list[str]]:
        """Independent cycles, each as a -> b -> a; empty when the steps can be ordered."""
        found: list[list[str]] = []
        place = {step: index for index, step in enumerate(self._dependencies)}
        dependencies = dict(self._dependencies)
        while len(found) < MAX_CYCLES:
            try:
                self._order = list(TopologicalSorter(dependencies).static_order())
                break
            except CycleError as error:
                # graphlib lists each step before its dependents; people read the arrow as "needs".
                cycle: list[str] = list(reversed(error.args[1]))[:-1]
            start = cycle.index(min(cycle, key=place.__getitem__))
            cycle = cycle[start:] + cycle[:start]
            found.append([*cycle, cycle[0]])
            members = set(cycle)
            for step in cycle:
                dependencies[step] = [name for name in dependencies[step] if name not in members]
        return found

    def comes_before(self, earlier: str, later: str) -> bool:
        """Whether `later` depends on `earlier`, directly or through others."""
        if not self._before:
            self._number()
        return bool(self._before[later] & self._bits[earlier])

    def _number(self) -> None:
        """One bit per step: a set of ten thousand ancestors is then one integer."""
        if self._order is None:
            self.cycles()
        self._bits = {step: 1 << index for index, step in enumerate(self._dependencies)}
        for step in self._order or ():
            before = 0
            for name in self._dependencies[step]:
                before |= self._before.get(name, 0) | self._bits[name]
            self._before[step] = before
