"""What the trials of a capacity search showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measurement:
    """What one trial showed."""

    value: int  # of the option that is varied
    seed: int
    facts: int
    load: float  # bits asked for, for each parameter
    accuracy: float
    bits: float  # memorised, for each parameter
    recall: float | None = None  # the metric that decides, where that is not the accuracy

    @property
    def score(self) -> float:
        """What has to reach a level."""
        return self.accuracy if self.recall is None else self.recall

    def reaches(self, level: float) -> bool:
        return self.score >= level - 1e-12


@dataclass(frozen=True)
class Summary:
    """All seeds at one value."""

    value: int
    facts: int
    load: float
    seeds: int
    accuracy: float
    bits: float
    reached: tuple[float, ...]  # for each level, the fraction of seeds that reach it
    score: float


def summarise(done: Sequence[Measurement], levels: Sequence[float]) -> list[Summary]:
    by_value: dict[int, list[Measurement]] = {}
    for one in done:
        by_value.setdefault(one.value, []).append(one)
    return [_summary(by_value[value], levels) for value in sorted(by_value)]


def _summary(some: Sequence[Measurement], levels: Sequence[float]) -> Summary:
    return Summary(
        some[0].value,
        some[0].facts,
        some[0].load,
        len(some),
        float(np.mean([one.accuracy for one in some])),
        float(np.mean([one.bits for one in some])),
        tuple(float(np.mean([one.reaches(level) for one in some])) for level in levels),
        float(np.mean([one.score for one in some])),
    )
