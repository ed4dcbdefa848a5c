"""Shard: one of several parts of a grid, for machines that know nothing of each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from membench.errors import UsageError
from membench.plan.groups import groups
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

        Groups of seeds are dealt out in the order of their ids, each part an unbroken run of them: parts differ by at
        most one group, and most points stay in one part, whose groups then share the probes of their protocol.
        """
        there = sorted((point.id, seeds) for point, seeds in groups(trials))
        first, last = ((number * len(there)) // self.count for number in (self.number - 1, self.number))
        own = {(name, seed) for name, seeds in there[first:last] for seed in seeds}
        return [trial for trial in trials if (trial.id, trial.seed) in own]
