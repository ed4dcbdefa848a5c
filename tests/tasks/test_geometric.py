from __future__ import annotations

import numpy as np
import pytest

from membench.interface.facts import draw_facts
from membench_tasks.geometric import GEOMETRIC, GeometricConfig


@pytest.mark.parametrize(
    ("A", "alpha", "nb", "entropy", "highest"),
    [
        (10, 0.5, None, 1.37854169, 0.50048876),
        (10, 0.5, 3, 0.95569989, 0.57142857),
        (50, 0.9, 50, 3.21837176, 0.10051805),
        (50, 1.0, 1, 0.0, 1.0),
        (50, 1.0, 50, 3.91202301, 0.02),
        (10, 0.0, 10, 0.0, 1.0),
    ],
)
@pytest.mark.parametrize("N", [None, 6, 60])
def test_entropy_and_largest_probability(
    A: int, alpha: float, nb: int, entropy: float, highest: float, N: int | None
) -> None:
    facts = draw_facts(GEOMETRIC, GeometricConfig(N=N or A, A=A, alpha=alpha, nb=nb), seed=0)
    assert np.allclose(facts.entropies(), entropy, rtol=0, atol=1e-8)
    assert np.allclose(facts.targets.max(axis=1), highest, rtol=0, atol=1e-8)
    assert facts.bayes_accuracy() == pytest.approx(highest, abs=1e-8)


def test_every_context_has_the_same_probabilities_and_nb_of_them() -> None:
    facts = draw_facts(GEOMETRIC, GeometricConfig(N=12, alpha=0.8, nb=5), seed=0)
    ordered = np.sort(facts.targets, axis=1)[:, ::-1]
    assert (ordered == ordered[0]).all()
    assert np.allclose(ordered[0, 1:5] / ordered[0, :4], 0.8)
    assert not ordered[0, 5:].any()


def test_each_context_has_its_own_uniform_order() -> None:
    facts = draw_facts(GEOMETRIC, GeometricConfig(N=3, alpha=0.5, S=7, T0=1200), seed=0)
    orders, counts = np.unique(np.argsort(facts.targets, axis=1), axis=0, return_counts=True)
    assert len(orders) == 6
    assert np.abs(counts / 1200 - 1 / 6).max() < 0.055  # five standard deviations


def test_auto_is_every_answer() -> None:
    assert GeometricConfig(N=7) == GeometricConfig(N=7, nb=7)
    assert GeometricConfig(N=7, A=4) == GeometricConfig(N=7, A=4, nb=4)


def test_more_possible_answers_than_there_are_are_refused() -> None:
    assert GeometricConfig(N=20, nb=20).nb == 20
    with pytest.raises(ValueError, match=r"^nb=30 is more than the A=20 answers$"):
        GeometricConfig(N=20, nb=30)
