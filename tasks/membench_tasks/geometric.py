"""`geometric`, version 1: distributions of one geometric profile, permuted afresh for each context.

    pi(sigma_t(i) | t) = alpha^i / sum_{j<nb} alpha^j   for i = 0..nb-1, else 0

The permutations sigma_t of the A answers, by default the N tokens, are uniform and independent, so that all contexts
have the same entropy and nothing about one context helps with another. alpha = 1 is uniform over nb answers; nb = 1 is
a look-up table. The T0 contexts of S tokens are drawn without replacement among the N^S.

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
class GeometricConfig(SupportConfig):
    alpha: float = option(0.5, help="ratio alpha of one probability to the next larger one", minimum=0, maximum=1)
    nb: int = option(None, help="number nb of possible answers to a context (auto: A)", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nb is None:
            object.__setattr__(self, "nb", self.A)
        if self.nb > self.A:
            raise ValueError(f"nb={self.nb} is more than the A={self.A} answers")


def sample(config: GeometricConfig, rng: np.random.Generator) -> Facts:
    inputs = draw_contexts(config.N, config.S, config.T0, rng)
    targets = rng.permuted(np.tile(_profile(config), (config.T0, 1)), axis=1)  # [T0, A]
    return Facts(inputs, targets, zipf_prior(config.T0, config.zipf, rng), config.N, config.A)


def _profile(config: GeometricConfig) -> NDArray[np.float64]:
    """The probabilities that every context has, from the most likely answer to the least, float64[A]."""
    powers = config.alpha ** np.arange(config.nb)
    profile = np.zeros(config.A)
    profile[: config.nb] = powers / powers.sum()
    return profile


GEOMETRIC = Task(
    name="geometric",
    version=1,
    summary="Geometrically decreasing probabilities, in a random order of the answers for each context.",
    config=GeometricConfig,
    shape=lambda config: config.shape,
    sample=sample,
    contexts=lambda config: config.T0,
)
