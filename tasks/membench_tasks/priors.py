"""Priors: how often each context of a support is asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def zipf_prior(count: int, exponent: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The prior p_i = i^-s / sum_j j^-s with i the place of a context in a random ordering, float64[count].

    An exponent s of 0 is the uniform prior, and draws nothing from the generator.
    """
    if exponent == 0:
        return np.full(count, 1 / count)
    masses = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return rng.permutation(masses / masses.sum())
