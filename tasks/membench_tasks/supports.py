"""Supports: the T0 distinct contexts on which a task asks for an answer, and the options that choose them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from membench.api import Shape, option

AUTO_LIMIT = 2500  # all contexts of N=50, S=2; beyond, N^S soon is more than can be visited exhaustively


@dataclass(frozen=True, kw_only=True)
class SupportConfig:
    """The options of every task whose contexts may have any length."""

    N: int = option(20, help="vocabulary size N", minimum=2)
    A: int = option(None, help="answers A (auto: N)", minimum=2, later=True)
    S: int = option(2, help="context length S", minimum=1)
    T0: int = option(None, help=f"number of contexts T0 (auto: all N^S, at most {AUTO_LIMIT})", minimum=1)
    zipf: float = option(0.0, help="exponent s of the Zipf prior over contexts (0: uniform)", minimum=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "T0", support_size(self.N, self.S, self.T0, limit=AUTO_LIMIT))
        object.__setattr__(self, "A", self.N if self.A is None else self.A)

    @property
    def shape(self) -> Shape:
        return Shape(self.N, self.S, self.A)


def all_contexts(N: int, S: int) -> int:
    """N^S, or a number beyond all that have 64 bits: an option may be so large that working it out would never end."""
    total = 1
    for _ in range(min(S, 65)):
        total *= N
    return total


def support_size(N: int, S: int, T0: int | None, *, limit: int | None = None) -> int:
    """The number of contexts that T0 asks for; None asks for all N^S of them, or for `limit` if there are more.

    Raises ValueError when there are fewer than T0.
    """
    total = all_contexts(N, S)
    if T0 is None:
        return total if limit is None else min(total, limit)
    if total < T0:
        raise ValueError(f"T0={T0} is more than the N^S={total} distinct contexts (N={N}, S={S})")
    return T0


def draw_contexts(N: int, S: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Distinct contexts, int64[count, S], in lexicographic order; every set of `count` of them is equally likely.

    Memory grows with `count`, never with N^S.
    """
    total = all_contexts(N, S)
    if count == total:
        return contexts_at(np.arange(total, dtype=np.int64), N, S)
    if total > np.iinfo(np.int64).max:
        return draw_by_rejection(N, S, count, rng)
    return contexts_at(np.sort(rng.choice(total, size=count, replace=False, shuffle=False)), N, S)


def contexts_at(ranks: NDArray[np.int64], N: int, S: int) -> NDArray[np.int64]:
    """The contexts at these places of the lexicographic order of all N^S: the digits of each rank in base N."""
    place_values = N ** np.arange(S - 1, -1, -1, dtype=np.int64)
    return np.asarray(ranks[:, None] // place_values % N, dtype=np.int64)  # [count, S]


def draw_by_rejection(N: int, S: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """As `draw_contexts`, without ever numbering the contexts; slow when `count` comes near N^S."""
    contexts = np.empty((0, S), dtype=np.int64)
    while len(contexts) < count:
        # Never more than are missing: cutting a sorted surplus off would favour the first contexts.
        more = rng.integers(N, size=(count - len(contexts), S), dtype=np.int64)
        contexts = np.unique(np.concatenate([contexts, more]), axis=0)  # sorts lexicographically
    return contexts
