from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from membench.interface.facts import Facts, draw_facts
from membench_tasks.almost_low_rank import ALMOST_LOW_RANK, AlmostLowRankConfig


def centred_logits(facts: Facts) -> NDArray[np.float64]:
    logits = np.log(facts.targets)
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def rank(matrix: NDArray[np.float64]) -> int:
    return int(np.linalg.matrix_rank(matrix, rtol=1e-9))


@pytest.mark.parametrize(
    ("A", "T0", "r", "expected"),
    [(20, 400, 1, 1), (20, 400, 3, 3), (10, 100, 8, 8), (10, 100, 9, 9), (10, 100, 40, 9), (20, 5, 8, 5)],
)
@pytest.mark.parametrize("N", [20, 30])
def test_without_noise_the_centred_logits_have_rank_r(A: int, T0: int, r: int, expected: int, N: int) -> None:
    facts = draw_facts(ALMOST_LOW_RANK, AlmostLowRankConfig(N=N, A=A, T0=T0, r=r, sigma=0.0), seed=0)
    assert rank(centred_logits(facts)) == expected


def test_noise_fills_the_rank_but_stays_small() -> None:
    facts = draw_facts(ALMOST_LOW_RANK, AlmostLowRankConfig(N=20, r=3, sigma=1e-3), seed=0)
    assert rank(centred_logits(facts)) == 19
    strengths = np.linalg.svd(centred_logits(facts), compute_uv=False)
    # G of 400 x 20 has singular values of at most about sqrt(400) + sqrt(20) = 24.5.
    assert strengths[2] > 5
    assert 1e-2 < strengths[3] < 3e-2


@pytest.mark.parametrize("r", [1, 3, 30])
def test_logits_have_unit_variance_whatever_the_rank(r: int) -> None:
    variances = [
        centred_logits(draw_facts(ALMOST_LOW_RANK, AlmostLowRankConfig(N=50, r=r, sigma=0.0), seed)).var()
        for seed in range(20)
    ]
    assert np.mean(variances) == pytest.approx(1 - 1 / 50, rel=0.15)  # centring takes 1/N of it


def test_noise_has_the_size_that_sigma_says() -> None:
    quiet, loud = (
        centred_logits(draw_facts(ALMOST_LOW_RANK, AlmostLowRankConfig(N=20, sigma=sigma), seed=0))
        for sigma in (0.0, 0.5)
    )
    assert (loud - quiet).std() == pytest.approx(0.5 * np.sqrt(1 - 1 / 20), rel=0.03)


def test_the_largest_noise_that_is_allowed_is_still_a_distribution() -> None:
    facts = draw_facts(ALMOST_LOW_RANK, AlmostLowRankConfig(N=10, sigma=1000.0), seed=0)
    assert np.allclose(facts.targets.sum(axis=1), 1, rtol=0, atol=1e-12)
