"""`low-entropy`, version 1: a noisy look-up table.

    spread:        pi(k | t) = 1 - p if k = g(t), else p / (A - 1)
    concentrated:  pi(k | t) = 1 - p if k = g(t), p if k = w(t), else 0

The labels g(t) are uniform over the A answers, the wrong answers w(t) uniform over the A - 1 others, all independent.
By default the answers are the tokens, A = N.
With h(p) = -p log p - (1 - p) log(1 - p), every context has the entropy

    spread: h(p) + p log(A - 1)              concentrated: h(p)

in nats. p is at most 1 - 1/A, where spread noise is uniform; concentrated noise of more than 1/2 makes the wrong
answer the likelier one. The T0 contexts of S tokens are drawn without replacement among the N^S.

With an exponent s, the prior is p_i = i^-s / sum_j j^-s over a random ordering of the contexts, drawn last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, Task, option
from membench_tasks.priors import zipf_prior
from membench_tasks.supports import SupportConfig, draw_contexts


@dataclass(frozen=True, kw_only=True)
class LowEntropyConfig(SupportConfig):
    N: int = option(20, help="vocabulary size N", minimum=2)
    p: float = option(0.1, help="probability p that the answer is not the label", minimum=0, maximum=1)
    noise: str = option("spread", help="where p goes: all other answers, or one", choices=("spread", "concentrated"))

    def __post_init__(self) -> None:
        super().__post_init__()
        highest = (self.A - 1) / self.A
        if self.p > highest:
            raise ValueError(f"p={self.p:g} is more than 1-1/A={highest:g} (A={self.A}), where the noise is uniform")


def sample(config: LowEntropyConfig, rng: np.random.Generator) -> Facts:
    inputs = draw_contexts(config.N, config.S, config.T0, rng)
    labels = rng.integers(config.A, size=config.T0, dtype=np.int64)
    targets = _spread(labels, config) if config.noise == "spread" else _concentrated(labels, config, rng)
    return Facts(inputs, targets, zipf_prior(config.T0, config.zipf, rng), config.N, config.A)


def _spread(labels: NDArray[np.int64], config: LowEntropyConfig) -> NDArray[np.float64]:
    targets = np.full((config.T0, config.A), config.p / (config.A - 1))
    targets[np.arange(config.T0), labels] = 1 - config.p
    return targets


def _concentrated(labels: NDArray[np.int64], config: LowEntropyConfig, rng: np.random.Generator) -> NDArray[np.float64]:
    wrong = (labels + rng.integers(1, config.A, size=config.T0)) % config.A
    targets = np.zeros((config.T0, config.A))
    targets[np.arange(config.T0), labels] = 1 - config.p
    targets[np.arange(config.T0), wrong] = config.p
    return targets


LOW_ENTROPY = Task(
    name="low-entropy",
    version=1,
    summary="A look-up table with noise: the label with probability 1-p, another answer otherwise.",
    config=LowEntropyConfig,
    shape=lambda config: config.shape,
    sample=sample,
    contexts=lambda config: config.T0,
)
