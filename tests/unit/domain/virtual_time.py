"""Programs that wait for each other, in a time that passes only when all of them wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TypeAlias

NEVER = math.inf


@dataclass(frozen=True)
class Wait:
    """Until `ready`, which is worth asking again at `due` or when anything has changed."""

    ready: Callable[[], bool]
    due: Callable[[], float] = lambda: NEVER


Program: TypeAlias = Generator[Wait, None, None]


@dataclass
class _Task:
    order: tuple[int, int]
    program: Program
    wait: Wait


@dataclass(kw_only=True)
class World:
    """Its programs, and what happens to it from outside and when."""

    now: float = -NEVER
    ended_at: float = NEVER
    ties: int = 0
    """How often two things happened at the same time before it ended: their order is nobody's promise."""
    agenda: list[tuple[float, str]] = field(default_factory=list)
    tasks: list[_Task] = field(default_factory=list)

    def happen(self, what: str) -> None:
        raise NotImplementedError

    def add(self, order: tuple[int, int], program: Program) -> None:
        self.tasks.append(_Task(order, program, next(program)))
        self.tasks.sort(key=lambda task: task.order)

    def live(self) -> None:
        """Until nothing more can happen."""
        self.agenda.sort()
        while self._pass_time():
            while self._go_on():
                pass

    def _go_on(self) -> bool:
        """Lets the first program that can go on do so."""
        for task in self.tasks:
            if task.wait.ready():
                try:
                    task.wait = next(task.program)
                except StopIteration:
                    self.tasks.remove(task)
                return True
        return False

    def _pass_time(self) -> bool:
        times = [task.wait.due() for task in self.tasks] + [when for when, _ in self.agenda]
        self.now = min(times, default=NEVER)
        if self.now == NEVER:
            return False
        if self.ended_at == NEVER and sum(each - self.now < 1e-5 for each in times) > 1:
            self.ties += 1
        while self.agenda and self.agenda[0][0] <= self.now:
            self.happen(self.agenda.pop(0)[1])
        return True
