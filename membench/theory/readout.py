"""The readout: the one linear map that is left to find when a model's features and unembedding are frozen.

Logits are W_U M z with W_U in R^{A x d}, features z in R^m and the unknown M in R^{d x m}. Asking for exact outputs is
a linear system; asking for a small cross-entropy is convex, and memorises more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from membench.theory.descent import descend

Array = NDArray[np.float64]

_BURST = 150  # iterations between two looks at whether all answers are right
_BURSTS = 12


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The singular value decomposition of features Z = U diag(values) V^T, without what is numerically zero."""

    U: Array  # [T, rank]
    values: Array  # [rank], falling
    V: Array  # [m, rank]
    full_rank: int  # min(T, m)

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def condition(self) -> float:
        """Largest over smallest singular value; infinite for features of deficient rank."""
        return float(self.values[0] / self.values[-1]) if self.rank == self.full_rank else float("inf")


def spectrum_of(Z: Array, threshold: float) -> Spectrum:
    """Singular values below `threshold` times the largest count as zero."""
    U, values, Vt = np.linalg.svd(Z, full_matrices=False)
    kept = int((values > threshold * values[0]).sum())
    return Spectrum(U[:, :kept], values[:kept], Vt[:kept].T, min(Z.shape))


def solve_readout(Z: Array, outputs: Array, spectrum: Spectrum) -> Array:
    """The smallest M with Z M^T = outputs in the sense of least squares, refined once: [d, m]."""
    M = _apply_inverse(spectrum, outputs)
    M += _apply_inverse(spectrum, outputs - Z @ M.T)
    return M


def _apply_inverse(spectrum: Spectrum, outputs: Array) -> Array:
    return np.asarray(((outputs.T @ spectrum.U) / spectrum.values) @ spectrum.V.T)


def fit_readout(W_U: Array, spectrum: Spectrum, targets: Array, mass: Array, start: Array | None = None) -> Array:
    """The M of least cross-entropy, [d, m]: stops early once every answer is right, if every target is a label.

    The problem is solved in coordinates in which the features are orthonormal.
    """
    U = spectrum.U * np.sqrt(len(spectrum.U))
    scale = spectrum.values / np.sqrt(len(spectrum.U))
    point = np.zeros((W_U.shape[1], spectrum.rank)) if start is None else (start @ spectrum.V) * scale
    labels = targets.argmax(axis=1) if np.all(targets.max(axis=1) == 1) else None
    for _ in range(_BURSTS):
        end = descend(lambda at: _cross_entropy(at, W_U, U, targets, mass), point.ravel(), _BURST, 1e-10)
        point = end.point.reshape(point.shape)
        if end.converged or (labels is not None and lead(U @ point.T @ W_U.T, labels).min() > 0):
            break
    return np.asarray((point / scale) @ spectrum.V.T)


def independent_rows(Z: Array, threshold: float) -> NDArray[np.int64]:
    """Rows of which each keeps more than `threshold` of the longest once the rows before it are projected out.

    The longest of what is left is taken next, as in a QR decomposition with pivoting.
    """
    rest = Z.copy()
    chosen: list[int] = []
    limit = threshold * np.linalg.norm(rest, axis=1).max()
    for _ in range(min(Z.shape)):
        lengths = np.linalg.norm(rest, axis=1)
        row = int(lengths.argmax())
        if lengths[row] <= limit:
            break
        chosen.append(row)
        direction = rest[row] / lengths[row]
        for _ in range(2):  # once more, against rounding
            rest -= np.outer(rest @ direction, direction)
    return np.array(chosen, dtype=np.int64)


def lead(logits: Array, labels: NDArray[np.int64]) -> Array:
    """By how much each label's logit leads all others, float64[T]; positive where the answer is right."""
    rows = np.arange(len(labels))
    others = logits.copy()
    others[rows, labels] = -np.inf
    return np.asarray(logits[rows, labels] - others.max(axis=1))


def _cross_entropy(point: Array, W_U: Array, U: Array, targets: Array, mass: Array) -> tuple[float, Array]:
    logits = (U @ point.reshape(W_U.shape[1], -1).T) @ W_U.T  # [T, A]
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    totals = weights.sum(axis=1, keepdims=True)
    losses = np.log(totals[:, 0]) - (targets * logits).sum(axis=1)
    slopes = mass[:, None] * (weights / totals - targets)  # [T, A]
    return float(mass @ losses), ((slopes @ W_U).T @ U).ravel()
