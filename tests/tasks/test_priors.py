from __future__ import annotations

import numpy as np
import pytest

from membench_tasks.priors import contexts_for_mass, zipf_prior


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


@pytest.mark.parametrize(
    ("count", "exponent", "needed"),
    [
        (2500, 1.0, {0.01: 2299, 0.1: 1079, 0.5: 37}),
        (2500, 1.5, {0.01: 926, 0.1: 45, 0.5: 2}),
        (100, 1.0, {0.01: 95, 0.1: 60, 0.5: 8}),
        (2500, 0.0, {0.01: 2475, 0.1: 2250, 0.5: 1250}),
    ],
)
def test_contexts_for_mass(count: int, exponent: float, needed: dict[float, int], rng: np.random.Generator) -> None:
    prior = zipf_prior(count, exponent, rng)
    assert {eps: contexts_for_mass(prior, eps) for eps in needed} == needed


@pytest.mark.parametrize("exponent", [0.0, 1.0, 6.0])
def test_contexts_for_mass_at_the_ends(exponent: float, rng: np.random.Generator) -> None:
    prior = zipf_prior(1000, exponent, rng)  # at exponent 6 the smallest mass is 1e-18
    assert contexts_for_mass(prior, 0.0) == 1000
    assert contexts_for_mass(prior, 1.0) == 0


def test_contexts_without_mass_are_never_needed() -> None:
    assert contexts_for_mass(np.array([0.0, 0.75, 0.0, 0.25]), 0.0) == 2
    assert contexts_for_mass(np.array([0.0, 0.75, 0.0, 0.25]), 0.25) == 1


@pytest.mark.parametrize("eps", [-0.1, 1.1, float("nan")])
def test_a_share_outside_zero_to_one_is_refused(eps: float) -> None:
    with pytest.raises(ValueError, match=rf"^eps={eps} is not a share of the mass; a number from 0 to 1 is needed$"):
        contexts_for_mass(np.ones(1), eps)
