"""`text`, version 1: which word follows in Shakespeare.

    pi(k | t) = (count(t, k) + smooth) / sum_j (count(t, j) + smooth)        p(t) = count(t) / sum of all counts

The tokens are the N - 1 most frequent words of Shakespeare's works and one that stands for all others, which is the
last of them. The contexts are the S words that occur before a word, each as often as it occurs; the answers are the
tokens. With N = 50 and S = 2 there are 2,056 contexts, and the next word has 2.79 bits of entropy. Everything is given
by the text: a seed only decides about the initial weights.

The counts are of every three words of the 42 works of Project Gutenberg that come with the package shakespeare 0.6, in
lower case, words being [a-z']+ and the works following each other in alphabetical order, speakers' names and headings
included. They were made by tasks/make_data.py for N = 200, and a smaller N adds the rarer words to the others. The
digest of the table is part of this version.
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, Names, Shape, Task, option
from membench_tasks.tables import read_table

SHA256 = "6be755e8a9ac31352c32ba5c652ccebc532422ca15aae60499eb0a029f61ba1f"
MAX_N = 200


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    N: int = option(50, help="words N, the last of which stands for all rarer ones", minimum=2, maximum=MAX_N)
    S: int = option(2, help="words S before the one that is asked for", minimum=1, maximum=2)
    # Beyond this, nothing of the text would be left.
    smooth: float = option(0.0, help="what is added to each count", minimum=0, maximum=1e6)


@functools.cache
def _table() -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Three words [rows, 3], how often they follow each other [rows], and all words by rank."""
    with np.load(io.BytesIO(read_table("text.npz", SHA256))) as arrays:
        numbers = np.cumsum(arrays["gaps"].astype(np.int64))
        words = np.stack([numbers // MAX_N**2, numbers // MAX_N % MAX_N, numbers % MAX_N], axis=1)
        return words, arrays["counts"].astype(np.int64), tuple(map(str, arrays["words"]))


@functools.lru_cache(maxsize=4)
def counts(N: int, S: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The contexts that occur, int64[T, S] in lexicographic order, and how often each word follows, float64[T, N]."""
    words, often, _ = _table()
    places = np.minimum(words[:, 2 - S :], N - 1) @ N ** np.arange(S, -1, -1)
    table = np.asarray(np.bincount(places, often, N ** (S + 1)), np.float64).reshape(N**S, N)
    (there,) = np.nonzero(table.sum(axis=1))
    contexts: NDArray[np.int64] = there[:, None] // N ** np.arange(S - 1, -1, -1) % N
    return contexts, table[there]


def names(config: TextConfig) -> Names:
    words = _table()[2]
    return Names((*words[: config.N - 1], words[-1]), (*words[: config.N - 1], words[-1]))


def sample(config: TextConfig, rng: np.random.Generator) -> Facts:
    inputs, table = counts(config.N, config.S)
    prior = table.sum(axis=1) / table.sum()
    smoothed = table + config.smooth
    return Facts(inputs, smoothed / smoothed.sum(axis=1, keepdims=True), prior, config.N)


TEXT = Task(
    name="text",
    version=1,
    summary="The next word in Shakespeare after one or two words, as distributions.",
    config=TextConfig,
    shape=lambda config: Shape(config.N, config.S, config.N),
    sample=sample,
    contexts=lambda config: len(counts(config.N, config.S)[0]),
    names=names,
    attribution="counts from the works of Shakespeare, Project Gutenberg, public domain",
)
