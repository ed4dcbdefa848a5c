"""`recall`, version 1: the association of single tokens with answers, some asked for far more often than others.

    pi(k | t) = 1 if k = g(t), else 0        p_i = i^-s / sum_j j^-s over a random ordering of the inputs

The T0 inputs are drawn without replacement among the N tokens, all by default. Answers are dealt out evenly: each of
the A is that of as many inputs as any other, up to one, in random order. It is the setting of Cabannes, Dohmatob,
Bietti, "Scaling Laws for Associative Memories", 2023, arXiv:2310.02984, there with N = 100, A = 5 and s = 2.

The prior is drawn last: the same seed gives the same inputs and answers whatever s is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from membench.api import Facts, Shape, Task, option
from membench_tasks.priors import zipf_prior
from membench_tasks.supports import draw_contexts, support_size


@dataclass(frozen=True, kw_only=True)
class RecallConfig:
    N: int = option(1000, help="number of inputs N", minimum=2)
    A: int = option(None, help="answers A (auto: N)", minimum=2)
    T0: int = option(None, help="inputs T0 that have an answer (auto: all N)", minimum=1)
    zipf: float = option(1.0, help="exponent s of the Zipf prior over inputs (0: uniform)", minimum=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "T0", support_size(self.N, 1, self.T0))
        object.__setattr__(self, "A", self.N if self.A is None else self.A)
        if self.A > self.N:
            raise ValueError(f"A={self.A} is more answers than there are inputs, N={self.N}")


def sample(config: RecallConfig, rng: np.random.Generator) -> Facts:
    inputs = draw_contexts(config.N, 1, config.T0, rng)
    # Which answers are left over where they do not come out even is as random as their order.
    dealt = np.resize(rng.permutation(config.A), config.T0)
    labels = rng.permutation(dealt).astype(np.int64)
    return Facts(inputs, labels, zipf_prior(config.T0, config.zipf, rng), config.N, config.A)


RECALL = Task(
    name="recall",
    version=1,
    summary="An answer for each of N single tokens, with a Zipf prior.",
    config=RecallConfig,
    shape=lambda config: Shape(config.N, 1, config.A),
    sample=sample,
    contexts=lambda config: config.T0,
)
