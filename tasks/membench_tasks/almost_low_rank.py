"""`almost-low-rank`, version 1: logits of rank r, blurred by noise.

    L = U V / sqrt(r) + sigma G        pi(. | t) = softmax(L_t)

with U of T0 x r, V of r x A and G of T0 x A standard normal entries. Adding a constant to a row of L changes nothing,
so what a sequence encoder of width d can represent exactly is decided by the rank of the row-centred log-probabilities
L (I - 11^T / A): at sigma = 0 that is min(r, T0, A - 1), and with noise it is full. By default the A answers are the N
tokens. The T0 contexts of S tokens are drawn without replacement among the N^S, and have nothing to do with the rows
of U.

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
class AlmostLowRankConfig(SupportConfig):
    r: int = option(3, help="rank r of the logits before the noise", minimum=1)
    # The maximum keeps the logits finite; the softmax has long become one-hot there.
    sigma: float = option(0.1, help="standard deviation sigma of the noise on the logits", minimum=0, maximum=1000)


def sample(config: AlmostLowRankConfig, rng: np.random.Generator) -> Facts:
    inputs = draw_contexts(config.N, config.S, config.T0, rng)
    targets = _softmax(_draw_logits(config, rng))
    return Facts(inputs, targets, zipf_prior(config.T0, config.zipf, rng), config.N, config.A)


def _draw_logits(config: AlmostLowRankConfig, rng: np.random.Generator) -> NDArray[np.float64]:
    rows = rng.standard_normal((config.T0, config.r))
    columns = rng.standard_normal((config.r, config.A))
    noise = rng.standard_normal((config.T0, config.A))
    logits: NDArray[np.float64] = rows @ columns / np.sqrt(config.r) + config.sigma * noise
    return logits


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


ALMOST_LOW_RANK = Task(
    name="almost-low-rank",
    version=1,
    summary="Distributions whose logits have rank r, up to noise of size sigma.",
    config=AlmostLowRankConfig,
    shape=lambda config: config.shape,
    sample=sample,
    contexts=lambda config: config.T0,
)
