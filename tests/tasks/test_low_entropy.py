from __future__ import annotations

import numpy as np
import pytest

from membench.interface.facts import draw_facts
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.low_entropy import LOW_ENTROPY, LowEntropyConfig


@pytest.mark.parametrize(
    ("A", "p", "entropy"),
    [
        (50, 0.1, 0.71426500),
        (50, 0.01, 0.09491974),
        (10, 0.1, 0.54480543),
        (10, 0.3, 1.27003168),
        (2, 0.25, 0.56233514),
        (50, 0.0, 0.0),
        (50, 0.98, 3.91202301),  # log 50: the noise is uniform
    ],
)
@pytest.mark.parametrize("N", [None, 6, 60])
def test_entropy_of_spread_noise(A: int, p: float, entropy: float, N: int | None) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=N or A, A=A, p=p), seed=0)
    assert np.allclose(facts.entropies(), entropy, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("p", "entropy"), [(0.0, 0.0), (0.1, 0.32508297), (0.25, 0.56233514), (0.5, 0.69314718)])
@pytest.mark.parametrize(("N", "A"), [(2, 2), (10, 10), (50, 50), (10, 3), (3, 10)])
def test_entropy_of_concentrated_noise_does_not_depend_on_the_vocabulary(
    N: int, A: int, p: float, entropy: float
) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=N, A=A, p=p, noise="concentrated"), seed=0)
    assert np.allclose(facts.entropies(), entropy, rtol=0, atol=1e-8)


@pytest.mark.parametrize("noise", ["spread", "concentrated"])
def test_the_label_keeps_what_the_noise_leaves(noise: str) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=10, p=0.3, noise=noise), seed=0)
    assert np.allclose(facts.targets.max(axis=1), 0.7, rtol=0, atol=1e-12)
    assert facts.bayes_accuracy() == pytest.approx(0.7)


def test_spread_noise_is_equal_on_all_other_answers() -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=10, p=0.18), seed=0)
    assert np.allclose(np.sort(facts.targets, axis=1)[:, :-1], 0.02, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("N", "S"), [(5, 4), (25, 2)])
def test_concentrated_noise_is_on_one_answer_that_may_be_any_other(N: int, S: int) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=N, A=5, p=0.3, noise="concentrated", S=S), seed=0)
    assert np.array_equal((facts.targets > 0).sum(axis=1), np.full(625, 2))
    labels, wrong = facts.targets.argmax(axis=1), np.abs(facts.targets - 0.3).argmin(axis=1)
    distances = np.bincount((wrong - labels) % 5, minlength=5)
    assert distances[0] == 0
    assert np.abs(distances[1:] / 625 - 0.25).max() < 0.09  # five standard deviations


@pytest.mark.parametrize("noise", ["spread", "concentrated"])
def test_labels_are_those_of_the_bigram_task_whatever_the_noise(noise: str) -> None:
    labels = draw_facts(BIGRAM, BigramConfig(N=10), seed=5).targets
    for p in (0.0, 0.1, 0.4):
        facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=10, p=p, noise=noise), seed=5)
        assert np.array_equal(facts.targets.argmax(axis=1), labels)


@pytest.mark.parametrize(("N", "p"), [(2, 0.5), (5, 0.8), (10, 0.9), (20, 0.95), (50, 0.98), (1000, 0.999)])
def test_the_largest_noise_that_is_allowed(N: int, p: float) -> None:
    assert LowEntropyConfig(N=N, p=p).p == p


def test_more_noise_than_uniform_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^p=0\.99 is more than 1-1/A=0\.98 \(A=50\), where the noise is uniform$"):
        LowEntropyConfig(N=50, p=0.99)
    assert LowEntropyConfig(N=50, A=200, p=0.99).p == 0.99
