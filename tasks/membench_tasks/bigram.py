"""`bigram`, version 1: the association of two tokens with an answer, by default a next token.

    pi(k | t) = 1 if k = g(t), else 0        g(t) uniform over the A answers, independent for each t

The T0 contexts t = (t_1, t_2) are drawn without replacement among the N^2; all of them by default. The entropy is
zero, so that an accuracy of 1 can be reached, and each fact is worth log2 A bits. With A = N it is the task of the
experiments in Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers", 2024, arXiv:2411.10115.

With an exponent s, the prior is p_i = i^-s / sum_j j^-s over a random ordering of the contexts. It is drawn last: the
same seed gives the same contexts and labels whatever s is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from membench.api import Facts, Shape, Task, option
from membench_tasks.priors import zipf_prior
from membench_tasks.supports import draw_contexts, support_size

LENGTH = 2  # S


@dataclass(frozen=True, kw_only=True)
class BigramConfig:
    N: int = option(50, help="vocabulary size N", minimum=2)
    A: int = option(None, help="answers A (auto: N)", minimum=2, later=True)
    T0: int = option(None, help="number of contexts T0 (auto: all N^2)", minimum=1)
    zipf: float = option(0.0, help="exponent s of the Zipf prior over contexts (0: uniform)", minimum=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "T0", support_size(self.N, LENGTH, self.T0))
        object.__setattr__(self, "A", self.N if self.A is None else self.A)


def sample(config: BigramConfig, rng: np.random.Generator) -> Facts:
    inputs = draw_contexts(config.N, LENGTH, config.T0, rng)
    labels = rng.integers(config.A, size=config.T0, dtype=np.int64)
    return Facts(inputs, labels, zipf_prior(config.T0, config.zipf, rng), config.N, config.A)


BIGRAM = Task(
    name="bigram",
    version=1,
    summary="A uniformly random answer for each pair of tokens.",
    config=BigramConfig,
    shape=lambda config: Shape(config.N, LENGTH, config.A),
    sample=sample,
    contexts=lambda config: config.T0,
)
