from __future__ import annotations

import numpy as np
import pytest

from membench.interface.facts import draw_facts
from membench_tasks.bigram import BIGRAM, BigramConfig


def test_the_default_is_every_pair_of_fifty_tokens() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(), seed=0)
    assert facts.shape == (50, 2, 50)
    assert len(facts) == 2500
    assert facts.inputs[:51].tolist() == [[0, i] for i in range(50)] + [[1, 0]]
    assert np.array_equal(facts.prior, np.full(2500, 1 / 2500))


def test_facts_are_an_association_that_can_be_known_entirely() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=10), seed=0)
    assert facts.targets.dtype == np.int64
    assert facts.targets.shape == (100,)
    assert facts.bayes_accuracy() == pytest.approx(1)


@pytest.mark.parametrize(("N", "A"), [(100, 100), (80, 100), (200, 100)])
def test_labels_are_uniform_and_independent_of_the_context(N: int, A: int) -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=N, A=A, T0=6400), seed=0)
    counts = np.bincount(facts.targets, minlength=A)
    assert ((counts - 64) ** 2 / 64).sum() < 170  # chi-square with 99 degrees of freedom, five standard deviations
    for position in (0, 1):
        tokens = facts.inputs[:, position]
        assert abs(np.corrcoef(tokens, facts.targets)[0, 1]) < 0.0625  # of 6400 pairs: five standard deviations


def test_auto_follows_the_vocabulary_without_a_limit() -> None:
    assert BigramConfig(N=200).T0 == 40_000
    assert BigramConfig(N=7) == BigramConfig(N=7, T0=49)


def test_more_pairs_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^T0=9999 is more than the N\^S=2500 distinct contexts \(N=50, S=2\)$"):
        BigramConfig(T0=9999)
