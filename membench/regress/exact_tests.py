"""Exact tests: would chance alone make such a difference between seeds?"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LEVEL = 0.01  # false alarms, at most, over all comparisons together
EXACT = 16  # pairs up to which all signs are tried; beyond, as many random ones


@dataclass(frozen=True)
class Evidence:
    """An exact test in one direction, before correction."""

    p: float = 1.0
    best: float = 1.0  # the smallest p that these numbers could have given, in whatever order
    possible: bool = False  # whether any order of them passes the level and the smallest change that counts


def seeds_needed(comparisons: int) -> int:
    """Paired seeds with which each of so many comparisons can reach the level after correction."""
    return math.floor(math.log2(comparisons / LEVEL)) + 1


def smallest_rank_p(one: int, other: int) -> float:
    return 1 / math.comb(one + other, one)


def sign_flip_test(gains: Numbers, counts: float) -> Evidence:
    """Is the mean gain below zero? Exact: without a change, each pair's difference is as likely up as down."""
    pairs = len(gains)
    means = _signs(pairs) @ gains / pairs
    if pairs > EXACT:  # what was seen, and the clearest loss, are among the signs that are tried
        means[:2] = gains.mean(), -np.abs(gains).mean()
    clearest = float(np.abs(gains).mean())
    slack = 1e-12 * clearest  # sums in another order differ in their last digits
    best = float(np.mean(means <= slack - clearest))
    return Evidence(float(np.mean(means <= gains.mean() + slack)), best, best < LEVEL and clearest > counts)


@functools.cache
def _signs(pairs: int) -> Numbers:
    """All ways to give signs to the pairs, or a fixed random choice of them when there are too many."""
    if pairs > EXACT:
        return np.random.default_rng(0).choice([-1.0, 1.0], size=(2**EXACT, pairs))
    bits = (np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1
    return 1.0 - 2.0 * bits.astype(np.float64)


def rank_test(new: Numbers, old: Numbers, counts: float) -> Evidence:
    """Is `new` smaller than `old`? Mann and Whitney's test, exact with ties: all ways to deal the ranks are counted."""
    values = np.sort(np.concatenate([new, old]))
    twice = np.searchsorted(values, values) + np.searchsorted(values, values, side="right") + 1  # of the mean rank
    chances = _sums(twice, len(new))
    seen = int(twice[np.searchsorted(values, new)].sum())
    best = float(chances[: int(twice[: len(new)].sum()) + 1].sum())
    clearest = values[len(new) :].mean() - values[: len(new)].mean()
    return Evidence(float(chances[: seen + 1].sum()), best, bool(best < LEVEL and clearest > counts))


def _sums(ranks: NDArray[np.int64], size: int) -> Numbers:
    """The chance of each sum of `size` ranks drawn from all of them without replacement."""
    ways = np.zeros((size + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1.0
    for drawn, rank in enumerate(ranks.tolist(), start=1):
        for chosen in range(min(drawn, size), 0, -1):
            ways[chosen, rank:] += ways[chosen - 1, : ways.shape[1] - rank]
    chances: Numbers = ways[size] / ways[size].sum()
    return chances


def holm(evidence: Sequence[Evidence]) -> list[float]:
    """p corrected for the comparisons that could have failed (Holm 1979; Tarone 1990).

    One whose numbers, in whatever order, stay below the smallest change that counts cannot raise
    an alarm, so that it does not make the others weaker.
    """
    order = sorted((i for i, one in enumerate(evidence) if one.possible), key=lambda i: evidence[i].p)
    corrected = [one.p for one in evidence]
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * evidence[i].p))
        corrected[i] = largest
    return corrected
