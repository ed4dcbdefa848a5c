"""How many contexts generic attention tells apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from membench.api import Facts
from membench.theory.attention_rank import Features, memorisable, memorisable_count, memorisable_mass

Contexts = NDArray[np.int64]


def all_contexts(N: int, S: int) -> Contexts:
    return np.array(list(itertools.product(range(N), repeat=S)), dtype=np.int64)


def make_facts(contexts: Contexts, N: int, prior: NDArray[np.float64] | None = None) -> Facts:
    masses = np.full(len(contexts), 1 / len(contexts)) if prior is None else prior
    return Facts(contexts, np.zeros(len(contexts), dtype=np.int64), masses, N)


def real_rank(contexts: Contexts, N: int, features: Features, rng: np.random.Generator) -> int:
    """The numerical rank of the features at a random real point."""
    d, S = features.d, contexts.shape[1]
    stream = rng.standard_normal((N, d))[contexts] + rng.standard_normal((S, d))
    columns = [np.eye(N)[contexts[:, -1]] if features.table else stream[:, -1]]
    for _ in range(features.H):
        query, key, value = 1.5 * rng.standard_normal((3, features.d_h, d)) / np.sqrt(d)
        scores = np.einsum("te,tse->ts", stream[:, -1] @ query.T, stream @ key.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed = np.einsum("ts,tsd->td", weights / weights.sum(axis=1, keepdims=True), stream)
        columns.append(mixed @ value.T)
    values = np.linalg.svd(np.concatenate(columns, axis=1), compute_uv=False)
    return int((values > 1e-11 * values[0]).sum())


@st.composite
def supports(draw: st.DrawFn) -> tuple[Contexts, int]:
    N, S = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    every = all_contexts(N, S)
    chosen = draw(st.lists(st.integers(0, len(every) - 1), min_size=1, max_size=24, unique=True))
    return every[chosen], N


@settings(max_examples=150, deadline=None)
@given(supports(), st.integers(1, 5), st.integers(1, 5), st.integers(0, 4), st.booleans(), st.integers(0, 2**32))
def test_exact_rank_is_the_rank_of_real_features(
    support: tuple[Contexts, int], d: int, d_h: int, H: int, table: bool, seed: int
) -> None:
    contexts, N = support
    features = Features(d, d_h, H, table)
    rng = np.random.default_rng(seed)
    seen = max(real_rank(contexts, N, features, rng) for _ in range(8))
    exact = memorisable_count(make_facts(contexts, N), features)
    assert seen <= exact <= features.most(contexts)
    # Features of one or two dimensions can be independent by less than rounding leaves of them.
    assert seen == exact or d <= 2


@pytest.mark.parametrize(
    ("N", "d", "d_h", "H", "rank"),
    [
        (50, 10, 10, 20, 210),
        (50, 10, 5, 20, 110),
        (20, 6, 3, 10, 36),
        (10, 2, 2, 20, 42),
        (10, 2, 5, 20, 42),
        (10, 15, 15, 4, 50),
    ],
)
def test_published_ranks(N: int, d: int, d_h: int, H: int, rank: int) -> None:
    facts = make_facts(all_contexts(N, 2), N)
    assert memorisable_count(facts, Features(d, d_h, H)) == rank
    assert len(memorisable(facts, Features(d, d_h, H))) == rank


def test_one_position_leaves_the_stream_alone() -> None:
    assert memorisable_count(make_facts(all_contexts(45, 1), 45), Features(5, 5, 8)) == 5


def test_equal_tokens_are_told_apart_by_positions_only() -> None:
    for S in (2, 3):
        contexts = np.repeat(np.arange(50)[:, None], S, axis=1)
        assert memorisable_count(make_facts(contexts, 50), Features(5, 5, 9)) == 5 + 9 * (S - 1)


def test_a_cluster_of_tokens_has_less_rank_than_the_dimensions_promise() -> None:
    """Sixteen contexts over four tokens, and twenty dimensions: the counterexample to 'any T0 distinct contexts'."""
    facts = make_facts(all_contexts(4, 2), 50)
    assert memorisable_count(facts, Features(10, 10, 1)) == 8


@pytest.mark.parametrize("N", [2, 3, 4])
def test_closed_form_for_all_bigrams(N: int) -> None:
    for d, d_h, H, table in itertools.product(range(1, 6), range(1, 6), (0, 1, 2, 5), (False, True)):
        facts, features = make_facts(all_contexts(N, 2), N), Features(d, d_h, H, table)
        assert memorisable_count(facts, features) == len(memorisable(facts, features))


@st.composite
def bigram_supports(draw: st.DrawFn) -> tuple[Contexts, int]:
    N = draw(st.integers(2, 4))
    chosen = draw(st.lists(st.integers(0, N * N - 1), min_size=1, max_size=8, unique=True))
    return all_contexts(N, 2)[chosen], N


def partition_rank(contexts: Contexts, N: int, d: int, d_h: int, H: int) -> int:
    """min over subsets A of |T - A| + r_0(A) + H min(d_h, r_1(A)): the rank of a union of matroids."""
    differences = np.zeros((len(contexts), N + 1))  # e[t_1] - e[t_2] + (pos_1 - pos_2) in free coordinates
    differences[:, N] = 1
    np.add.at(differences, (np.arange(len(contexts)), contexts[:, 0]), 1)
    np.add.at(differences, (np.arange(len(contexts)), contexts[:, 1]), -1)

    def value(inside: tuple[bool, ...]) -> int:
        chosen = list(inside)
        if not any(inside):
            return len(contexts)
        last = min(d, len(np.unique(contexts[chosen, 1])))
        spread = min(d, d_h, int(np.linalg.matrix_rank(differences[chosen])))
        return len(contexts) - sum(inside) + last + H * spread

    return min(value(inside) for inside in itertools.product((False, True), repeat=len(contexts)))


@settings(max_examples=60, deadline=None)
@given(bigram_supports(), st.integers(2, 4), st.integers(1, 4), st.integers(0, 3))
def test_rank_of_bigrams_is_that_of_a_matroid_union(support: tuple[Contexts, int], d: int, d_h: int, H: int) -> None:
    contexts, N = support
    assert memorisable_count(make_facts(contexts, N), Features(d, d_h, H)) == partition_rank(contexts, N, d, d_h, H)


def test_the_likeliest_contexts_are_chosen() -> None:
    contexts = all_contexts(6, 2)
    prior = np.random.default_rng(0).permutation(np.arange(1, 37) / (37 * 18))
    facts, features = make_facts(contexts, 6, prior), Features(3, 2, 2)
    chosen = memorisable(facts, features)
    assert len(chosen) == 7
    assert memorisable_mass(facts, features) == pytest.approx(prior[list(chosen)].sum())
    # Nothing likelier could take the place of what was chosen: generic bigrams of different tokens are independent.
    assert prior[list(chosen)].sum() >= np.sort(prior)[-8:-1].sum()


def test_the_same_facts_give_the_same_contexts() -> None:
    features = Features(3, 2, 2)
    first, second = (memorisable(make_facts(all_contexts(6, 2), 6), features) for _ in range(2))
    assert first == second
