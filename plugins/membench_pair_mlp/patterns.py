"""Which neurons each gate opens, and how many facts such patterns can hold: what is guaranteed, and constructed."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts

SEED = 0  # the patterns are fixed: what is guaranteed does not depend on luck


@functools.cache
def open_patterns(N: int, neurons: int) -> NDArray[np.float64]:
    """For each gate, the sign of each neuron that it opens and 0 for those it shuts, [N, neurons].

    Half of them, at random; at least one of each sign, so that what opens them can cancel out in the sum.
    """
    signs = np.where(np.arange(neurons) % 2, -1.0, 1.0)
    rng = np.random.default_rng(SEED)
    patterns = signs * (rng.random((N, neurons)) < 0.5)
    while neurons > 1 and (lacking := (patterns.max(1) <= 0) | (patterns.min(1) >= 0)).any():
        patterns[lacking] = signs * (rng.random((int(lacking.sum()), neurons)) < 0.5)
    return patterns


def positions(facts: Facts, neurons: int) -> tuple[int, int]:
    """The position of the holders, of which fewer have too many facts, and that of the gates."""
    surplus = [
        int(np.maximum(np.bincount(facts.inputs[:, column], minlength=facts.vocab) - neurons, 0).sum())
        for column in (0, 1)
    ]
    return (0, 1) if surplus[0] <= surplus[1] else (1, 0)


def solvable(facts: Facts, neurons: int) -> NDArray[np.int64]:
    """Facts whose equations are independent for every holder: as many as possible, and sorted."""
    holder, gate = positions(facts, neurons)
    patterns = open_patterns(facts.vocab, neurons)
    kept = [
        group[_independent_rows(patterns[facts.inputs[group, gate]])]
        for token in range(facts.vocab)
        if len(group := np.flatnonzero(facts.inputs[:, holder] == token))
    ]
    return np.sort(np.concatenate(kept))


def _independent_rows(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """A largest set of independent rows: the pivots of a QR decomposition of the transpose."""
    from scipy.linalg import qr

    factor, pivots = qr(rows.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(factor[: min(factor.shape), : min(factor.shape)]))
    rank = int((sizes > 1e-6 * sizes[0]).sum()) if len(sizes) and sizes[0] > 0 else 0
    return np.asarray(pivots[:rank], dtype=np.int64)
