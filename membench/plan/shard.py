"""Shard: one of several parts of a grid, for machines that know nothing of each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from membench.errors import UsageError
from membench.plan.trial import Trial


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, from 1 on. All parts together are the grid, and no two have a trial in common."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """UsageError for anything but two whole numbers such as 3/100."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise UsageError(
                f"--shard {text}: give a part and the number of parts, such as 3/100: from 1/100 to 100/100"
            )
        return cls(number, count)

    def of(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials of this part, in their order; which they are depends on the grid alone, not on what is done.

        Points are dealt out by their id. The seeds of a point stay together: they share the probes of their protocol
        and train in the same groups as without shards, so that they leave the same numbers.
        """
        points = sorted({trial.id for trial in trials})
        own = set(points[self.number - 1 :: self.count])
        return [trial for trial in trials if trial.id in own]
