"""Groups of seeds: what is trained together, and what a shard is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from membench.plan.trial import Point, Trial

REPLICAS = 5  # seeds trained together at most; fixed, so that a number does not depend on the number of cores


def groups(trials: Sequence[Trial]) -> Iterator[tuple[Point, tuple[int, ...]]]:
    """Seeds of one point together, in groups whose make-up depends on the trials alone."""
    by_point: dict[Point, list[int]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).append(trial.seed)
    for point, seeds in by_point.items():
        yield from ((point, group) for group in _split(sorted(seeds)))


def _split(seeds: Sequence[int]) -> Iterator[tuple[int, ...]]:
    count = max(-(-len(seeds) // REPLICAS), min(2, len(seeds)))  # at least two, for two cores
    size = -(-len(seeds) // count)
    return (tuple(seeds[i : i + size]) for i in range(0, len(seeds), size))
