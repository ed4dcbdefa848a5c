"""The floor: the best divergence of rank d, as an interval."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from membench.api import Facts
from membench.theory.facts_profile import profile
from membench.theory.floor import FloorInterval, best_encoder, floor
from membench_tasks.supports import contexts_at

Array = NDArray[np.float64]


def bigram_facts(targets: Array) -> Facts:
    count, A = targets.shape
    return Facts(contexts_at(np.arange(count), A, 2), targets, np.full(count, 1 / count), A)


def noisy(N: int, p: float, balanced: bool = False) -> Facts:
    """A noisy look-up table; a balanced one has every label equally often."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(N * N) % N) if balanced else rng.integers(N, size=N * N)
    targets = np.full((N * N, N), p / (N - 1))
    targets[np.arange(N * N), labels] = 1 - p
    return bigram_facts(targets)


def geometric(N: int, ratio: float) -> Facts:
    profile_ = ratio ** np.arange(N)
    return bigram_facts(np.random.default_rng(0).permuted(np.tile(profile_ / profile_.sum(), (N * N, 1)), axis=1))


def low_rank(noise: float) -> Facts:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((100, 3)) @ rng.standard_normal((3, 10)) / np.sqrt(3)
    logits += noise * rng.standard_normal((100, 10))
    return bigram_facts(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


def check(intervals: list[FloorInterval]) -> None:
    """What every floor must satisfy, whatever it found."""
    for interval in intervals:
        assert 0 <= interval.lower <= interval.upper <= interval.worst
        assert interval.gradient_norm < 1e-6
    uppers = [interval.upper for interval in intervals]
    assert uppers == sorted(uppers, reverse=True)


def test_floor_of_a_noisy_table() -> None:
    intervals = floor(noisy(10, 0.1), [1, 2, 3, 5, 8, 9])
    check(intervals)
    expected = [1.1179, 0.5153, 0.1740, 0.0325, 0.00596, 0]
    assert [interval.upper for interval in intervals] == pytest.approx(expected, rel=2e-3, abs=1e-12)
    assert all(interval.starts == 8 for interval in intervals[:-1])
    assert intervals[-1].starts == 0  # enough dimensions for any logits


def test_floor_of_a_geometric_task() -> None:
    intervals = floor(geometric(10, 0.5), [1, 2], starts=2)
    check(intervals)
    assert [interval.upper for interval in intervals] == pytest.approx([0.7267, 0.5437], rel=1e-3)


@pytest.mark.slow
def test_floor_of_a_geometric_task_in_all_dimensions() -> None:
    intervals = floor(geometric(10, 0.5), range(1, 10))
    check(intervals)
    expected = [0.7267, 0.5437, 0.3740, 0.2379, 0.1366]
    assert [interval.upper for interval in intervals[:5]] == pytest.approx(expected, rel=2e-3)
    assert intervals[7].upper == pytest.approx(0.0082, rel=0.06)  # many local minima next to full rank
    assert intervals[8].upper < 1e-12


def test_floor_of_nearly_low_rank_distributions() -> None:
    intervals = floor(low_rank(0.1), [2, 3], starts=1)
    check(intervals)
    assert [interval.upper for interval in intervals] == pytest.approx([0.03378, 0.001847], rel=1e-3)
    assert floor(low_rank(0.0), [3])[0].upper < 1e-12


@pytest.mark.slow
def test_floor_of_nearly_low_rank_distributions_in_more_dimensions() -> None:
    intervals = floor(low_rank(0.1), [2, 3, 4, 6], starts=4)
    check(intervals)
    expected = [0.03378, 0.001847, 0.001299, 0.000588]
    assert [interval.upper for interval in intervals] == pytest.approx(expected, rel=1e-3)
    assert intervals[0].worst == pytest.approx(intervals[0].upper, rel=1e-6)  # one minimum


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "best"), [(2, 1.9878), (5, 0.3926), (10, 0.1050), (20, 0.0279), (30, 0.0082), (40, 0.0040), (48, 0.00044)]
)
def test_floor_of_a_noisy_table_of_fifty_tokens(d: int, best: float) -> None:
    """Only 50 of its 2500 rows differ, and the floor sees no more than those."""
    facts = noisy(50, 0.1, balanced=True)
    assert len(profile(facts).rows) == 50
    interval = floor(facts, [d])[0]
    check([interval])
    assert interval.upper == pytest.approx(best, rel=3e-2)  # local minima are that far apart


def test_labels_have_no_floor_from_two_dimensions_on() -> None:
    labels = Facts(np.arange(5, dtype=np.int64)[:, None], np.arange(5, dtype=np.int64), np.full(5, 0.2), 5)
    one, two = floor(labels, [1, 2])
    assert (two.lower, two.upper, two.starts) == (0, 0, 0)
    assert 0 < one.upper < np.log(5)


def test_zero_probabilities_have_a_floor_without_a_proven_lower_end() -> None:
    interval = floor(bigram_facts(np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.9, 0.0, 0.1]])), [1], starts=3)[0]
    assert interval.lower == 0
    assert 0 < interval.upper < np.log(3)


@pytest.mark.parametrize("vocab", [16, 40])
def test_how_many_tokens_there_are_does_not_matter(vocab: int) -> None:
    facts = noisy(4, 0.1)
    contexts = np.arange(len(facts), dtype=np.int64)[:, None]
    same = Facts(contexts, facts.targets, facts.prior, vocab, answers=4)
    assert floor(same, [1, 2, 3]) == floor(facts, [1, 2, 3])
    labels = Facts(contexts, facts.targets.argmax(axis=1), facts.prior, vocab, answers=9)
    assert floor(labels, [2])[0].upper == 0


def test_order_of_the_dimensions_is_kept() -> None:
    facts = noisy(4, 0.1)
    assert [interval.d for interval in floor(facts, [2, 1, 2])] == [2, 1, 2]
    with pytest.raises(ValueError, match="d=0"):
        floor(facts, [0])


def test_a_model_that_beats_the_floor_improves_it() -> None:
    interval = FloorInterval(d=2, lower=0.1, upper=0.5, worst=0.6, starts=8, gradient_norm=0.0)
    assert interval.including(0.4).upper == 0.4
    assert interval.including(0.7) == interval
    assert interval.including(0.05).upper == 0.1  # no model does, but rounding may


def test_the_encoder_has_the_divergence_that_it_claims() -> None:
    facts = noisy(6, 0.2)
    encoder, found = best_encoder(facts, 2), profile(facts)
    logits = encoder.E @ encoder.W.T
    model = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    divergence = float(found.mass @ (found.rows * (np.log(found.rows) - model)).sum(axis=1))
    assert encoder.divergence == pytest.approx(divergence, abs=1e-12)
