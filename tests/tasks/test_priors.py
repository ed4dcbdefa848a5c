from __future__ import annotations

import numpy as np
import pytest

from membench_tasks.priors import zipf_prior


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0, 1.5, 4.0, 1000.0])
@pytest.mark.parametrize("count", [1, 2, 100, 2500])
def test_a_prior_sums_to_one(count: int, exponent: float, rng: np.random.Generator) -> None:
    prior = zipf_prior(count, exponent, rng)
    assert prior.shape == (count,)
    assert prior.min() >= 0
    assert abs(prior.sum() - 1) < 1e-12


def test_exponent_zero_is_uniform_and_draws_nothing(rng: np.random.Generator) -> None:
    before = rng.bit_generator.state
    assert np.array_equal(zipf_prior(400, 0.0, rng), np.full(400, 1 / 400))
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_masses_fall_as_a_power_of_the_rank(exponent: float, rng: np.random.Generator) -> None:
    masses = np.sort(zipf_prior(100, exponent, rng))[::-1]
    ranks = np.arange(1, 101)
    assert np.allclose(masses / masses[0], 1 / ranks**exponent, rtol=1e-12)


def test_the_most_likely_context_may_be_any_of_them(rng: np.random.Generator) -> None:
    places = {int(zipf_prior(4, 1.0, rng).argmax()) for _ in range(100)}
    assert places == {0, 1, 2, 3}
