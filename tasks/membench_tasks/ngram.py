"""`ngram`, version 1: the association of S tokens with an answer, by default a next token.

    pi(k | t) = 1 if k = g(t), else 0        g(t) uniform over the A answers, independent for each t

The T0 contexts t = (t_1, ..., t_S) are drawn without replacement among the N^S, however many those are. With S = 2
and an equal T0 it gives the facts of `bigram`.

With an exponent s, the prior is p_i = i^-s / sum_j j^-s over a random ordering of the contexts, drawn last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from membench.api import Facts, Task, option
from membench_tasks.priors import zipf_prior
from membench_tasks.supports import SupportConfig, draw_contexts


@dataclass(frozen=True, kw_only=True)
class NgramConfig(SupportConfig):
    S: int = option(3, help="context length S", minimum=1)


def sample(config: NgramConfig, rng: np.random.Generator) -> Facts:
    inputs = draw_contexts(config.N, config.S, config.T0, rng)
    labels = rng.integers(config.A, size=config.T0, dtype=np.int64)
    return Facts(inputs, labels, zipf_prior(config.T0, config.zipf, rng), config.N, config.A)


NGRAM = Task(
    name="ngram",
    version=1,
    summary="A uniformly random answer for each of T0 contexts of S tokens.",
    config=NgramConfig,
    shape=lambda config: config.shape,
    sample=sample,
    contexts=lambda config: config.T0,
)
