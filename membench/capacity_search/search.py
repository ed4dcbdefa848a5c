"""Search: which numbers of facts to train next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from membench.capacity_search.measurement import Measurement, Summary, summarise
from membench.capacity_search.threshold import crossing
from membench.errors import UsageError, unknown
from membench.measure.metrics import RECALLS, recall_name

PEAK_RESOLUTION = 0.5  # a peak is flat, and near it nothing is gained by looking closer
PEAK_GAIN = 0.02  # what a doubling must gain for the peak to be sought further up


@dataclass(frozen=True)
class Search:
    """Which values to train next. It depends on what was measured alone, so that it can be taken up again."""

    levels: tuple[float, ...]
    start: int
    smallest: int
    largest: int
    growth: int = 1  # facts grow as this power of the value
    resolution: float = 0.1  # neighbours at a threshold differ by at most this part

    def __post_init__(self) -> None:
        if not 0.001 <= self.resolution <= 1:
            raise UsageError(f"--resolution {self.resolution:g}: give a number from 0.001 to 1")
        if self.largest < self.smallest:
            raise UsageError(f"--largest {self.largest}: give a whole number of at least {self.smallest}")

    def next_values(self, done: Sequence[Measurement]) -> list[int]:
        """The values of the next round; none when the search has ended."""
        rows = summarise(done, self.levels)
        if not rows:
            return [self._inside(self.start)]
        wanted = {self._one_bit_for_each_parameter(rows[0])} if len(rows) == 1 else set()
        if wanted <= {row.value for row in rows}:
            wanted = self._towards_peak(rows).union(*(self._towards(i, rows) for i in range(len(self.levels))))
        return sorted(wanted - {row.value for row in rows})

    def _inside(self, value: float) -> int:
        return round(min(max(value, self.smallest), self.largest))

    def _one_bit_for_each_parameter(self, row: Summary) -> int:
        """A first guess: few models hold much less, and few hold more than two or three."""
        if not (math.isfinite(row.load) and row.load > 0):
            return row.value
        return self._inside(row.value * row.load ** (-1 / self.growth))

    def _towards(self, level: int, rows: Sequence[Summary]) -> set[int]:
        """Values that bracket where a level is no longer reached, or that divide the bracket."""
        reached = [row.reached[level] for row in rows]
        split = crossing(reached)
        if not any(one == 1 for one in reached[:split]) and rows[0].value > self.smallest:
            return {self._inside(rows[0].value // 2)}
        if not any(one == 0 for one in reached[split:]) and rows[-1].value < self.largest:
            return {self._inside(2 * rows[-1].value)}
        if split in (0, len(rows)):
            return set()
        gaps = {split: self.resolution}
        if split > 1 and reached[split - 1] < 1:
            gaps[split - 1] = 3 * self.resolution  # further away a value tells less of the threshold
        if split + 1 < len(rows) and reached[split] > 0:
            gaps[split + 1] = 3 * self.resolution
        return {middle for gap, apart in gaps.items() for middle in _between(rows[gap - 1], rows[gap], apart)}

    def _towards_peak(self, rows: Sequence[Summary]) -> set[int]:
        bits = [row.bits for row in rows]
        if not all(map(math.isfinite, bits)):
            return set()
        top = int(np.argmax(bits))
        if top == len(rows) - 1 and rows[-1].value < self.largest:
            rising = top == 0 or bits[top] > (1 + PEAK_GAIN) * bits[top - 1]
            return {self._inside(2 * rows[-1].value)} if rising else set()
        pairs = [(rows[i], rows[i + 1]) for i in (top - 1, top) if 0 <= i < len(rows) - 1]
        return {middle for left, right in pairs for middle in _between(left, right, PEAK_RESOLUTION)}


def _between(left: Summary, right: Summary, resolution: float) -> set[int]:
    """The geometric middle, if the two are further apart than they should be and anything lies between."""
    if right.value <= (1 + resolution) * left.value or right.value - left.value < 2:
        return set()
    return {min(max(round(math.sqrt(left.value * right.value)), left.value + 1), right.value - 1)}


@dataclass(frozen=True)
class Levels:
    """What counts as memorised: values of one metric, the highest first."""

    values: tuple[float, ...]
    metric: str = "accuracy"

    @classmethod
    def parse(cls, text: str) -> Levels:
        """`1,0.99` are accuracies, `recall@5=0.99` is how often the right answer is among the first five."""
        name, equals, numbers = text.rpartition("=")
        try:
            values = check_levels(float(part) for part in numbers.split(","))
        except ValueError:
            raise UsageError(
                f"--at {text}: give accuracies above 0 and up to 1, such as 1,0.99, or one metric as in recall@5=0.99"
            ) from None
        return cls(values, _metric(name.strip()) if equals else "accuracy")


def _metric(name: str) -> str:
    valid = ("accuracy", *map(recall_name, RECALLS))
    if name == "recall@1":
        return "accuracy"
    if name not in valid:
        raise unknown("metric of --at", name, valid, f"there are: {', '.join(valid)}")
    return name


def check_levels(levels: Iterable[float]) -> tuple[float, ...]:
    """Accuracies that count as memorised, the highest first. UsageError for what is none."""
    found = tuple(sorted(set(levels), reverse=True))
    if not found or not all(0 < level <= 1 for level in found):
        text = ",".join(f"{level:g}" for level in found)
        raise UsageError(f"--at {text}: give accuracies above 0 and up to 1, such as 1,0.99")
    return found
