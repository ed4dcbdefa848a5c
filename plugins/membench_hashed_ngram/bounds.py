"""What hash collisions allow: contexts that share all their slots share their answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from membench.api import Bound, Facts, NotApplicable, Setting
from membench.theory.counting import require_uniform_labels
from membench.theory.universal_bounds import expected_majority
from membench_hashed_ngram.hashing import slot

NAME = "hashed-ngram"
DERIVED = "balls in bins; derived in docs/theory.md"
_TABULATED = 400  # contexts in one slot for which the expected majority is worked out


def wanted(facts: Facts, hashes: int, M: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The different rows of slots, [used, hashes], and how much the contexts of each want every answer, [used, A]."""
    rows = np.stack([slot(facts.inputs, number, M) for number in range(hashes)], axis=1)
    slots, place = np.unique(rows, axis=0, return_inverse=True)
    weights = np.zeros((len(slots), facts.answers))
    np.add.at(weights, place.reshape(-1), facts.prior[:, None] * facts.distributions())
    return slots, weights


def _collisions(setting: Setting) -> float:
    _, weights = wanted(setting.facts, setting.config.hashes, setting.config.M)
    return float(weights.max(axis=1).sum())


def _reached(setting: Setting) -> float:
    config = setting.config
    if config.hashes > 1 or config.d < 2:
        raise NotApplicable(f"it is for one table with d=2 or more, not hashes={config.hashes} and d={config.d}")
    return _collisions(setting)


def _random_hash(setting: Setting) -> float:
    """M E[max Multinomial(n, 1/A)] / T0 with n contexts in a slot, binomial; several hashes are one into M^hashes."""
    require_uniform_labels(setting.facts)
    T0, A = len(setting.facts), setting.shape.answers
    slots = float(setting.config.M) ** setting.config.hashes
    right, most, n = 0.0, 1.0, 0
    chance = (1 - 1 / slots) ** T0 if slots > 1 else 0.0
    if slots == 1:
        return expected_majority(T0, A) / T0
    while most > 1e-12 and n < T0:
        chance *= (T0 - n) / ((n + 1) * (slots - 1))
        n += 1
        if n > _TABULATED:
            raise NotApplicable(f"slots hold more than the {_TABULATED} contexts worked out")
        right += slots * chance * expected_majority(n, A) / T0
        most = slots * chance if n > T0 / slots else 1.0
    return min(right, 1.0)


def bounds() -> list[Bound]:
    return [
        Bound(
            name="hash-collisions",
            summary="Contexts that share all their slots get the same answer.",
            formula="sum over rows of slots r of max_k sum_{t: h(t)=r} p_t pi(k|t)",
            latex=r"\sum_r\max_k\sum_{t:\,h(t)=r}p_t\,\pi(k\mid t)",
            quantity="accuracy",
            direction="upper",
            reference=DERIVED,
            value=_collisions,
            architecture=NAME,
        ),
        Bound(
            name="hash-majority",
            summary="With one table and answers on a circle, a slot gives the answer that most of its contexts want.",
            formula="sum over slots r of max_k sum_{t: h(t)=r} p_t pi(k|t), for hashes = 1 and d >= 2",
            latex=r"\sum_r\max_k\sum_{t:\,h(t)=r}p_t\,\pi(k\mid t)",
            quantity="accuracy",
            direction="lower",
            reference=DERIVED,
            value=_reached,
            architecture=NAME,
        ),
        Bound(
            name="hash-balls",
            summary="The same for a hash function drawn at random, on average over it and over random labels.",
            formula="M E[max Multinomial(n, 1/A)] / T0 with n ~ Binomial(T0, 1/M)",
            latex=r"\frac{M}{T_0}\,\mathbb E_{n\sim\mathrm{Bin}(T_0,1/M)}\,\mathbb E\max\mathrm{Multinomial}(n,1/A)",
            quantity="accuracy",
            direction="upper",
            reference=DERIVED,
            value=_random_hash,
            architecture=NAME,
            expected=True,
            expensive=True,
            restricted_to="hash functions drawn at random",
        ),
    ]
