"""Results: samples, their medians, and whether they meet the target."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure, with a sample per round."""

    unit: str
    samples: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def to_json(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "median": round(self.median, 4),
            "samples": [round(sample, 4) for sample in self.samples],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit of the ratio if there is a floor, else of ours. `plus` is what ours may exceed it by, in its own unit.

    `of_ours`: it is a limit of ours also with a floor.
    """

    at_most: float | None = None
    at_least: float | None = None
    plus: float = 0.0
    of_ours: bool = False

    def holds(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def __str__(self) -> str:
        limit = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        if self.of_ours:
            return f"ours {limit}"
        return f"{limit}, +{self.plus:g}" if self.plus else limit

    def to_json(self) -> dict[str, float | bool]:
        name, value = ("at_most", self.at_most) if self.at_most is not None else ("at_least", self.at_least)
        assert value is not None
        if self.of_ours:
            return {name: value, "of_ours": True}
        return {name: value, "plus": self.plus} if self.plus else {name: value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`ours`, against `floor` if there is one. `more` has figures that are reported and not judged.

    `compared` says whether ours is compared with those too, if there is a floor.
    """

    name: str
    what: str
    ours: Series
    floor: Series | None = None
    target: Target | None = None
    more: Mapping[str, Series] = field(default_factory=dict)
    compared: bool = True

    @property
    def ratio(self) -> float | None:
        """Of the two medians."""
        return self.ours.median / self.floor.median if self.floor is not None else None

    @property
    def holds(self) -> bool | None:
        """None: there is no target."""
        if self.target is None:
            return None
        judged = self.ours.median - self.target.plus
        if self.floor is None or self.target.of_ours:
            return self.target.holds(judged)
        return self.target.holds(judged / self.floor.median)

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"what": self.what, "ours": self.ours.to_json()}
        if self.floor is not None and self.ratio is not None:
            pairs = zip(self.ours.samples, self.floor.samples, strict=True)
            made["floor"] = self.floor.to_json()
            made["ratio"] = round(self.ratio, 4)
            made["ratios"] = [round(ours / floor, 4) for ours, floor in pairs]
        made["more"] = {name: series.to_json() for name, series in self.more.items()}
        made["target"] = self.target.to_json() if self.target is not None else None
        made["holds"] = self.holds
        return made
