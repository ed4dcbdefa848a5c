"""The tracks of the board, as data: what each asks, at which sizes, and what its score is.

All architectures are asked the same at the same sizes, so that a score is about sizes that everybody has. Nothing here
can saturate: sizes go from far too few parameters to plenty, or the number of facts is what is searched for.
docs/leaderboard.md has the definitions in words. Add a task or a size here, and `membench board fill`, the tables and
the page follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

SEEDS = (0, 1, 2, 3, 4)
N = 64  # tokens and answers of the associations: a fact is worth 6 bits
SMALLEST, LARGEST, NUMBER_OF_SIZES = 500, 30_000, 9
# At equal ratios, so that the mean over them is the area under the curve over the logarithm of the parameters.
GRID = tuple(
    round(SMALLEST * (LARGEST / SMALLEST) ** (step / (NUMBER_OF_SIZES - 1))) for step in range(NUMBER_OF_SIZES)
)
LOAD_IN_THE_MIDDLE = 2
FACTS = round(LOAD_IN_THE_MIDDLE * GRID[NUMBER_OF_SIZES // 2] / math.log2(N))  # 1,291
# Shorter than the default, and alike for all: a stranger must be able to afford it.
TRAINING = ("converged", "steps=300 rounds=3")
LEVELS = (1.0, 0.99)  # of the accuracy, at which a capacity is read
RESOLUTION = 0.5  # of the search for it


@dataclass(frozen=True)
class TrackTask:
    """A task as a track asks it. Real ones join here as any other."""

    name: str  # on the board
    task: str  # the task's own name
    config: str  # as tables spell it; where facts are searched for, without T0
    version: int = 1

    def asks(self, row: Mapping[str, Any], searched: bool) -> bool:
        """Whether a row of the board is about it."""
        if (row["task"], row["task_version"]) != (self.task, self.version):
            return False
        words = str(row["task_config"]).split()
        return " ".join(word for word in words if not (searched and word.startswith("T0="))) == self.config


@dataclass(frozen=True)
class Track:
    """Architectures are compared within a track, by one score for each task, and ranked over its tasks."""

    name: str  # after --track, and a key in JSON
    title: str
    meaning: str  # of a score, in one sentence
    score: str  # a name in SCORES
    tasks: Sequence[TrackTask]
    sizes: Sequence[int]  # parameters at most, ascending
    protocol: str = TRAINING[0]
    protocol_config: str = TRAINING[1]
    searched: bool = False  # the number of facts T0 is searched for, and not part of the task
    floor: bool = False  # the floor of the divergence is found too, where an architecture has one

    def trains(self, row: Mapping[str, Any]) -> bool:
        """Whether the weights of a row were found as the track has it."""
        return (row["protocol"], row["protocol_config"]) == (self.protocol, self.protocol_config)

    def slot(self, parameters: float) -> int | None:
        """Which of the sizes a model is of: the smallest that it fits, if it is larger than the one before."""
        return next((number for number, size in enumerate(self.sizes) if parameters <= size), None)


# What a score is a mean of, over the sizes of its track; more is better for all of them.
SCORES = {
    "load_at_99": "bits/param at 99 %",
    "accuracy": "accuracy",
    "share": "share of divergence",
}


def size_name(size: int) -> str:
    return f"{size / 1000:.2g}k" if size >= 1000 else str(size)


def _associations(facts: str = "") -> tuple[TrackTask, ...]:
    return (
        TrackTask("bigram", "bigram", f"N={N}{facts} zipf=0"),
        TrackTask("ngram", "ngram", f"N={N} S=3{facts} zipf=0"),
        TrackTask("zipf", "bigram", f"N={N}{facts} zipf=1"),
    )


EFFICIENCY = Track(
    "efficiency",
    "Efficiency: capacity per parameter",
    "Bits per parameter that a model can be asked for while half of the seeds still get 99 % right; mean over sizes.",
    "load_at_99",
    _associations(),
    (1_000, 3_000, 10_000),
    searched=True,
)
ACCURACY = Track(
    "accuracy",
    "Accuracy against parameters",
    f"Accuracy on {FACTS:,} facts, as the mean over {NUMBER_OF_SIZES} sizes at equal ratios: the area under the "
    "curve over the logarithm of the parameters.",
    "accuracy",
    _associations(f" T0={FACTS}"),
    GRID,
)
DISTRIBUTIONS = Track(
    "distributions",
    "Distributions",
    "Part of a uniform guess's divergence from the facts that the model has taken away; mean over sizes.",
    "share",
    (
        TrackTask("low-entropy", "low-entropy", "N=20 S=2 T0=400 zipf=0 p=0.1"),
        TrackTask("geometric", "geometric", "N=20 S=2 T0=400 zipf=0 alpha=0.5 nb=20"),
        TrackTask("almost-low-rank", "almost-low-rank", "N=20 S=2 T0=400 zipf=0 r=3 sigma=0.1"),
    ),
    (300, 1_000, 3_000),
    floor=True,
)
CONSTRUCTIONS = replace(
    ACCURACY,
    name="constructions",
    title="Constructions: weights from a formula",
    meaning="As for accuracy against parameters, with the weights that an architecture's own construction gives.",
    protocol="construct",
    protocol_config="",
)
TRACKS = {track.name: track for track in (EFFICIENCY, ACCURACY, DISTRIBUTIONS, CONSTRUCTIONS)}
