from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from membench.interface.facts import draw_facts
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.ngram import NGRAM, NgramConfig


def test_the_default_draws_some_of_the_trigrams_of_twenty_tokens() -> None:
    facts = draw_facts(NGRAM, NgramConfig(), seed=0)
    assert facts.shape == (20, 3, 20)
    assert len(facts) == 2500
    assert facts.is_association


@pytest.mark.parametrize(("N", "S", "T0"), [(1000, 10, 500), (2, 63, 100), (5, 1, 5), (4, 5, 1023)])
def test_any_length_of_context(N: int, S: int, T0: int) -> None:
    facts = draw_facts(NGRAM, NgramConfig(N=N, S=S, T0=T0), seed=0)
    assert facts.shape == (N, S, N)
    assert len(np.unique(facts.inputs, axis=0)) == T0


def test_another_seed_draws_other_contexts_and_labels() -> None:
    one, other = (draw_facts(NGRAM, NgramConfig(), seed) for seed in (0, 1))
    assert not np.array_equal(one.inputs, other.inputs)
    assert not np.array_equal(one.targets, other.targets)


@pytest.mark.parametrize("T0", [None, 60])
def test_with_two_tokens_it_is_the_bigram_task(T0: Any) -> None:
    ngram = draw_facts(NGRAM, NgramConfig(N=10, S=2, T0=T0, zipf=1.0), seed=3)
    assert ngram.sha256() == draw_facts(BIGRAM, BigramConfig(N=10, T0=T0, zipf=1.0), seed=3).sha256()


def test_auto_is_every_context_up_to_a_limit() -> None:
    assert NgramConfig(N=3, S=4).T0 == 81
    assert NgramConfig(N=1000, S=10).T0 == 2500


def test_more_contexts_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^T0=65 is more than the N\^S=64 distinct contexts \(N=4, S=3\)$"):
        NgramConfig(N=4, S=3, T0=65)
