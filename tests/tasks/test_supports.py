from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from membench_tasks.supports import AUTO_LIMIT, draw_by_rejection, draw_contexts, support_size

Draw = Callable[[int, int, int, np.random.Generator], NDArray[np.int64]]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def is_lexicographic(contexts: NDArray[np.int64]) -> bool:
    """Strictly, so that it also says that the contexts are distinct."""
    rows = [tuple(row) for row in contexts.tolist()]
    return all(one < other for one, other in itertools.pairwise(rows))


@pytest.mark.parametrize(("N", "S"), [(2, 1), (5, 1), (3, 2), (4, 3), (2, 6)])
def test_the_full_support_is_every_context_in_order_and_costs_no_randomness(
    N: int, S: int, rng: np.random.Generator
) -> None:
    before = rng.bit_generator.state
    contexts = draw_contexts(N, S, N**S, rng)
    assert contexts.dtype == np.int64
    assert contexts.tolist() == [list(row) for row in itertools.product(range(N), repeat=S)]
    assert rng.bit_generator.state == before


# 2^62 and 3^39 are just below the largest int64, 2^63 just above it, 1000^10 far above.
@pytest.mark.parametrize(("N", "S"), [(50, 2), (200, 2), (2, 62), (3, 39), (2, 63), (1000, 10), (2, 200)])
@pytest.mark.parametrize("count", [1, 500])
def test_a_drawn_support_is_distinct_sorted_and_within_the_vocabulary(
    N: int, S: int, count: int, rng: np.random.Generator
) -> None:
    contexts = draw_contexts(N, S, count, rng)
    assert contexts.shape == (count, S)
    assert contexts.dtype == np.int64
    assert contexts.min() >= 0
    assert contexts.max() < N
    assert is_lexicographic(contexts)


@pytest.mark.parametrize(("N", "S"), [(2, 62), (1000, 10)])
def test_every_position_of_a_huge_support_takes_every_kind_of_token(N: int, S: int, rng: np.random.Generator) -> None:
    contexts = draw_contexts(N, S, 2000, rng)
    upper_half = (contexts >= N // 2).mean(axis=0)
    assert np.abs(upper_half - 0.5).max() < 0.06  # more than five standard deviations of 2000 fair coins


@pytest.mark.parametrize("draw", [draw_contexts, draw_by_rejection])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_set_of_contexts_is_equally_likely(draw: Draw, count: int, rng: np.random.Generator) -> None:
    draws = 3000
    seen = Counter(str(draw(2, 2, count, rng).tolist()) for _ in range(draws))
    sets = {1: 4, 2: 6, 3: 4}[count]
    assert len(seen) == sets
    assert max(abs(times / draws - 1 / sets) for times in seen.values()) < 0.04  # five standard deviations


def test_rejection_ends_even_where_collisions_are_the_rule(rng: np.random.Generator) -> None:
    contexts = draw_by_rejection(3, 3, 27, rng)
    assert contexts.tolist() == [list(row) for row in itertools.product(range(3), repeat=3)]


def test_the_support_is_everything_unless_a_number_or_a_limit_says_otherwise() -> None:
    assert support_size(50, 2, None) == 2500
    assert support_size(200, 2, None) == 40_000
    assert support_size(200, 2, None, limit=AUTO_LIMIT) == 2500
    assert support_size(7, 2, None, limit=AUTO_LIMIT) == 49
    assert support_size(200, 2, 30_000, limit=AUTO_LIMIT) == 30_000
    assert support_size(1000, 10, 500) == 500


def test_more_contexts_than_exist_are_refused() -> None:
    assert support_size(50, 2, 2500) == 2500
    with pytest.raises(ValueError, match=r"^T0=2501 is more than the N\^S=2500 distinct contexts \(N=50, S=2\)$"):
        support_size(50, 2, 2501)


def test_contexts_too_many_to_count_are_counted_at_once() -> None:
    from membench_tasks.supports import all_contexts

    assert all_contexts(3, 5) == 3**5
    assert all_contexts(1, 2**53) == 1
    assert all_contexts(2, 2**53) > 2**64  # to work that power out would never end
    assert support_size(50, 2**53, None, limit=7) == 7
    with pytest.raises(ValueError, match="more than the N"):
        support_size(2, 3, 9)
