"""Bounds on the divergence of logits of rank d."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from membench.api import Facts, NotApplicable, Setting
from membench.interface.bound import Vacuous
from membench.theory.divergence_bounds import Family
from membench.theory.encoders import (
    base_terms,
    best_two_answers,
    coherence_divergence,
    entropy_scales,
    log_rank,
    optimal_scales,
    rank_floor,
    refined_divergence,
    scaled_divergences,
    self_concordance,
    spectral_divergence,
    theorem_2_constant,
    theorem_2_factor,
)
from membench.theory.evaluate import BoundValue, evaluate_bounds
from membench.theory.facts_profile import Profile, profile
from membench.theory.frames import Frame, best_frame, circle, orthoplex, random_frame, simplex

Array = NDArray[np.float64]


def rows_as_facts(rows: Array, mass: Array | None = None) -> Facts:
    """One context for each distribution; how many tokens it has must not matter."""
    contexts = np.arange(len(rows), dtype=np.int64)[:, None]
    masses = np.full(len(rows), 1 / len(rows)) if mass is None else mass
    return Facts(contexts, rows, masses, vocab=len(rows) + 1, answers=rows.shape[1])


def noisy(A: int, p: float) -> Facts:
    rows = np.full((A, A), p / (A - 1))
    np.fill_diagonal(rows, 1 - p)
    return rows_as_facts(rows)


def mean(found: Profile, terms: Array) -> float:
    return float(found.mass @ terms)


@pytest.mark.parametrize(
    ("A", "p", "entropy", "base"),
    [
        (50, 0.1, 0.71426500, 0.38500214),
        (50, 0.01, 0.09491974, 0.06198709),
        (10, 0.1, 0.54480543, 0.25198117),
        (10, 0.3, 1.27003168, 0.37705209),
        (2, 0.25, 0.56233514, 0.07033709),
    ],
)
def test_base_term_of_a_noisy_table(A: int, p: float, entropy: float, base: float) -> None:
    found = profile(noisy(A, p))
    assert found.entropy == pytest.approx(entropy, abs=5e-9)
    assert mean(found, base_terms(found)) == pytest.approx(base, abs=5e-9)


@pytest.mark.parametrize(("A", "p", "scale"), [(50, 0.1, 3.77302098), (10, 0.3, 1.13115627)])
def test_equation_6_on_the_simplex(A: int, p: float, scale: float) -> None:
    found, frame = profile(noisy(A, p)), simplex(A, A - 1)
    scales = entropy_scales(found, frame)
    assert scales == pytest.approx(scale, abs=5e-9)
    assert mean(found, scaled_divergences(found, frame, scales)) == pytest.approx(mean(found, base_terms(found)))
    assert coherence_divergence(found, frame) == pytest.approx(mean(found, base_terms(found)))


@pytest.mark.parametrize(
    ("A", "p", "scale", "divergence"),
    [(10, 0.1, 2.41315797, 0.26812866), (10, 0.3, 1.17686398, 0.39228799), (50, 0.1, 3.82985437, 0.39080147)],
)
def test_equation_6_on_the_orthoplex(A: int, p: float, scale: float, divergence: float) -> None:
    found, frame = profile(noisy(A, p)), orthoplex(A, A // 2)
    scales = entropy_scales(found, frame)
    assert scales == pytest.approx(scale, abs=5e-9)
    assert mean(found, scaled_divergences(found, frame, scales)) == pytest.approx(divergence, abs=5e-9)
    base = mean(found, base_terms(found))
    assert coherence_divergence(found, frame) == pytest.approx(2 * base)
    assert refined_divergence(found, frame) == pytest.approx(base * A / (A - 1))


@pytest.mark.parametrize(
    ("p", "scale", "divergence", "best"),
    [(0.1, 95.6101, 9.756128, 2.012179), (0.01, 380.4757, 3.882406, 1.454825), (0.3, 11.6104, 3.554217, 1.569805)],
)
def test_equation_6_and_optimal_scale_on_the_circle(p: float, scale: float, divergence: float, best: float) -> None:
    found, frame = profile(noisy(50, p)), circle(50)
    scales = entropy_scales(found, frame)
    assert scales == pytest.approx(scale, abs=5e-5)
    assert mean(found, scaled_divergences(found, frame, scales)) == pytest.approx(divergence, abs=5e-7)
    assert mean(found, scaled_divergences(found, frame, optimal_scales(found, frame))) == pytest.approx(best, abs=5e-7)


def test_optimal_scale_on_the_simplex_costs_only_what_the_noise_is_not_uniform() -> None:
    """KL = p KL(noise || uniform over the others), and nothing for uniform noise."""
    found, frame = profile(noisy(10, 0.3)), simplex(10, 9)
    assert mean(found, scaled_divergences(found, frame, optimal_scales(found, frame))) == pytest.approx(0, abs=1e-12)
    noise = np.array([0.5, 0.3, 0.2])
    rows = np.array([[0.7, *(0.3 * noise)]])
    found, frame = profile(rows_as_facts(rows)), simplex(4, 3)
    expected = 0.3 * float(noise @ np.log(noise * 3))
    assert mean(found, scaled_divergences(found, frame, optimal_scales(found, frame))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("d", "coherent", "refined", "equation_6", "optimal"),
    [
        (2, 97.65, 49.82, 9.756, 2.0122),
        (5, 1.706, 0.892, 0.587, 0.3997),
        (10, 0.821, 0.513, 0.438, 0.1087),
        (20, 0.74, 0.423, 0.401, 0.0324),
        (30, 0.770, 0.392, 0.390, 0.0091),
        (40, 0.4813, 0.390, 0.387, 0.0057),
        (48, 0.4010, 0.393, 0.385, 0.00077),
    ],
)
def test_ladder_of_theorem_2(d: int, coherent: float, refined: float, equation_6: float, optimal: float) -> None:
    """Each step is tighter than the one before; frames between the circle and the orthoplex are local optima."""
    found, frame = profile(noisy(50, 0.1)), best_frame(50, d)
    steps = [
        coherence_divergence(found, frame),
        refined_divergence(found, frame),
        mean(found, scaled_divergences(found, frame, entropy_scales(found, frame))),
        mean(found, scaled_divergences(found, frame, optimal_scales(found, frame))),
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps == pytest.approx([coherent, refined, equation_6, optimal], rel=0.06)


def test_constant_of_theorem_2() -> None:
    assert theorem_2_constant(50, 10) == pytest.approx(3.547089, abs=5e-7)
    wide = theorem_2_constant(1000, 900)
    assert wide == pytest.approx(0.495625, abs=5e-7)
    assert [theorem_2_factor(wide, x) for x in (1, 2, 0)] == pytest.approx([284.2455, 340.8946, 227.5964], abs=5e-5)
    wider = theorem_2_constant(1000, 2000)
    assert wider == pytest.approx(0.332476, abs=5e-7)
    assert [theorem_2_factor(wider, x) for x in (1, 2, 0)] == pytest.approx([5.9616, 6.9539, 4.9693], abs=5e-5)
    with pytest.raises(Vacuous, match=r"C=3.547 is not below 1/2"):
        theorem_2_factor(theorem_2_constant(50, 10))


@pytest.mark.parametrize(("A", "d"), [(10, 307), (50, 504), (70, 546), (200, 679), (1000, 885), (50257, 1386)])
def test_where_theorem_2_begins_to_say_something(A: int, d: int) -> None:
    assert 2 * theorem_2_constant(A, d) < 1 <= 2 * theorem_2_constant(A, d - 1)


def test_theorem_2_is_of_use_from_869_answers() -> None:
    def is_useful(A: int) -> bool:
        return 2 * theorem_2_constant(A, A - 2) < 1  # at d = A-1 the divergence is zero anyway

    assert next(A for A in range(3, 1000) if is_useful(A)) == 869


def test_the_simplified_form_of_theorem_2_is_not_implied() -> None:
    """Averaging noise and entropy before the convex function gives less than the encoder's divergence."""
    A, p = 50, 0.5
    concentrated, uniform = np.zeros(A), np.full(A, p / (A - 1))
    concentrated[:2], uniform[0] = [1 - p, p], 1 - p
    found, frame = profile(rows_as_facts(np.stack([concentrated, uniform]))), simplex(A, A - 1)
    divergence = mean(found, scaled_divergences(found, frame, entropy_scales(found, frame)))
    assert divergence == pytest.approx(1.30467281, abs=5e-9)
    assert divergence == pytest.approx(coherence_divergence(found, frame))
    simplified = p * math.log((A - 1) / math.expm1(found.entropy))
    assert simplified == pytest.approx(1.21759168, abs=5e-9)
    assert simplified < divergence


@st.composite
def noisy_rows(draw: st.DrawFn) -> tuple[Facts, Frame]:
    A, d = draw(st.integers(3, 8)), draw(st.integers(2, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.dirichlet(np.full(A, draw(st.sampled_from([0.2, 1.0, 5.0]))), size=draw(st.integers(1, 6))) + 1e-12
    rows /= rows.sum(axis=1, keepdims=True)
    return rows_as_facts(rows, rng.dirichlet(np.ones(len(rows)))), random_frame(A, d, rng)


@settings(max_examples=100, deadline=None)
@given(noisy_rows())
def test_theorem_2_on_random_frames(case: tuple[Facts, Frame]) -> None:
    facts, frame = case
    found = profile(facts)
    scales = entropy_scales(found, frame)
    gaps = 1 - frame[found.labels] @ frame.T
    divergences = scaled_divergences(found, frame, scales)
    assert divergences == pytest.approx(scales * (found.rows * gaps).sum(axis=1), rel=1e-9, abs=1e-12)  # the identity
    eq6, best = mean(found, divergences), mean(found, scaled_divergences(found, frame, optimal_scales(found, frame)))
    assert best <= eq6 + 1e-12
    assert eq6 <= refined_divergence(found, frame) * (1 + 1e-9)
    assert refined_divergence(found, frame) <= coherence_divergence(found, frame) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(noisy_rows(), st.integers(0, 8), st.integers(0, 2**32))
def test_spectral_bounds_hold_from_both_sides(case: tuple[Facts, Frame], d: int, seed: int) -> None:
    """The cut spectrum reaches the upper bound; random logits of rank d never undercut the lower one."""
    facts, _ = case
    found = profile(facts)
    logs = found.centred_logs()
    weighted = np.sqrt(found.mass)[:, None] * logs
    directions = np.linalg.svd(weighted, full_matrices=False)[2][:d]
    cut = logs @ directions.T @ directions
    assert divergence_of(found, cut) <= spectral_divergence(facts, d) + 1e-12
    rng = np.random.default_rng(seed)
    nearby = (logs + 0.3 * rng.standard_normal(logs.shape)) @ directions.T @ directions
    for logits in (cut, nearby):
        assert divergence_of(found, logits) >= rank_floor(facts, d) - 1e-12


def divergence_of(found: Profile, logits: Array) -> float:
    model = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return mean(found, (found.rows * (np.log(found.rows) - model)).sum(axis=1))


@pytest.mark.parametrize(("squares", "eta"), [(0.01, 0.0047724), (1, 0.32866515), (10, 1.74177942)])
def test_self_concordance(squares: float, eta: float) -> None:
    assert self_concordance(squares) == pytest.approx(eta, abs=5e-8)


@pytest.mark.parametrize(
    ("d", "floor"), [(2, 1.2e-3), (5, 1.1e-3), (10, 1.1e-3), (20, 9e-4), (30, 7e-4), (40, 5e-4), (48, 1.6e-4)]
)
def test_proven_floor_of_a_noisy_table(d: int, floor: float) -> None:
    assert rank_floor(noisy(50, 0.1), d) == pytest.approx(floor, rel=0.08)


def low_rank(rank: int, noise: float, seed: int = 0) -> Facts:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((100, rank)) @ rng.standard_normal((rank, 10)) / math.sqrt(rank)
    logits += noise * rng.standard_normal((100, 10))
    rows = np.exp(logits)
    return rows_as_facts(rows / rows.sum(axis=1, keepdims=True))


def evaluate(facts: Facts, d: int, expensive: bool = False) -> dict[str, BoundValue]:
    family = Family("encoder", lambda config: config.d, "e")
    bounds = [*family.limits(), *family.constants(), *family.guarantees(lambda setting: None)]
    setting = Setting("encoder", SimpleNamespace(d=d), facts)
    return {value.name: value for value in evaluate_bounds(bounds, setting, expensive=expensive)}


def test_rank_is_enough() -> None:
    facts = low_rank(3, 0.0)
    assert log_rank(facts) == 3
    assert evaluate(facts, 3)["e-proposition-2"].value == 0
    assert evaluate(facts, 2)["e-proposition-2"].reason == (
        "does not apply: d=2 < A-1=9, and the centred log-probabilities have rank 3"
    )
    assert evaluate(low_rank(3, 0.1), 9)["e-proposition-2"].value == 0
    assert spectral_divergence(facts, 3) == pytest.approx(0, abs=1e-20)


def test_the_least_squares_bound_of_the_talk_is_replaced_by_one_that_holds() -> None:
    """Rank 3 and noise of 1e-3. A |pi|^2 sigma^2 + (A |pi|)^1.5 sigma^3, with |pi| the largest joint probability, is
    below the divergence that it should bound; a quarter of the cut squares is above.
    """
    facts = low_rank(3, 1e-3)
    found = profile(facts)
    values, directions = np.linalg.svd(found.centred_logs(), full_matrices=False)[1:]
    reached = divergence_of(found, found.centred_logs() @ directions[:3].T @ directions[:3])
    assert reached == pytest.approx(2.137e-7, rel=1e-3)
    largest = float(found.rows.max()) / 100
    talk = 10 * largest**2 * values[3] ** 2 + (10 * largest) ** 1.5 * values[3] ** 3
    assert talk == pytest.approx(1.474e-7, rel=1e-3)
    assert talk < reached <= spectral_divergence(facts, 3) <= 100 * reached


def test_circle_is_enough_for_labels() -> None:
    labels = Facts(np.array([[0], [1]], dtype=np.int64), np.array([4, 0], dtype=np.int64), np.full(2, 0.5), 2, 5)
    assert evaluate(labels, 2)["e-proposition-3"].value == 0
    assert evaluate(labels, 1)["e-proposition-3"].reason == "does not apply: d=1, and the circle needs d >= 2"
    assert "more than one possible answer" in str(evaluate(noisy(5, 0.1), 2)["e-proposition-3"].reason)


@pytest.mark.parametrize(
    ("A", "scale", "divergence"),
    [
        (3, 1, 0.3689811), (3, 10, 6.118045e-7), (10, 1, 1.538499), (10, 10, 0.2609873), (10, 100, 1.015649e-8),
        (50, 10, 1.854995), (50, 100, 0.6917647), (50, 1000, 7.521855e-4), (3, 3.5289, 0.01), (10, 27.7162, 0.01),
        (50, 671.2889, 0.01), (10, 0, math.log(10)),
    ],
)  # fmt: skip
def test_divergence_of_labels_on_the_circle(A: int, scale: float, divergence: float) -> None:
    labels = Facts(np.array([[0]], dtype=np.int64), np.array([A - 1], dtype=np.int64), np.ones(1), 2, A)
    found = profile(labels)
    assert scaled_divergences(found, circle(A), np.array([scale])) == pytest.approx(divergence, rel=5e-5)


def test_constants() -> None:
    facts = noisy(50, 0.1)
    values = evaluate(facts, 10)
    assert values["e-zero-logits"].value == pytest.approx(3.198, abs=5e-4)
    assert values["e-unigram"].value == pytest.approx(values["e-zero-logits"].value)  # all answers are equally likely
    skewed = rows_as_facts(np.array([[0.9, 0.1], [0.6, 0.4]]))
    marginal, entropy = np.array([0.75, 0.25]), profile(skewed).entropy
    assert evaluate(skewed, 1)["e-unigram"].value == pytest.approx(-float(marginal @ np.log(marginal)) - entropy)


def test_theorem_2_as_published_says_that_it_is_vacuous() -> None:
    value = evaluate(noisy(50, 0.1), 10)["e-theorem-2"]
    assert value.status == "vacuous"
    assert value.reason == "vacuous: C=3.547 is not below 1/2: d > 128 log(A+1) = 503 is needed"


def test_theorem_2_as_published_in_a_wide_model() -> None:
    A, p, d = 1000, 0.1, 2000
    row = np.full((1, A), p / (A - 1))
    row[0, 0] = 1 - p
    found = profile(facts := rows_as_facts(row))
    expected = 6.9539 * mean(found, base_terms(found))
    assert evaluate(facts, d)["e-theorem-2"].value == pytest.approx(expected, rel=1e-5)


def test_full_support_is_asked_for_where_it_is_needed() -> None:
    facts = rows_as_facts(np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]))
    values = evaluate(facts, 1)
    for name in ("e-rank-floor", "e-spectral", "e-proposition-2"):
        assert values[name].reason == "does not apply: some answer has probability zero, and full support is needed"
    with pytest.raises(NotApplicable):
        rank_floor(facts, 1)


def test_one_dimension_has_two_answers() -> None:
    labels = Facts(
        np.arange(4, dtype=np.int64)[:, None],
        np.array([0, 1, 1, 2], dtype=np.int64),
        np.array([0.1, 0.2, 0.3, 0.4]),
        4,
        3,
    )
    assert best_two_answers(labels) == pytest.approx(0.9)
    assert evaluate(labels, 1)["e-two-answers"].value == pytest.approx(0.9)
    assert evaluate(labels, 2)["e-two-answers"].status == "does not apply"
    assert best_two_answers(rows_as_facts(np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]]))) == pytest.approx(0.55)


def test_frames_need_two_dimensions() -> None:
    value = evaluate(noisy(5, 0.1), 1, expensive=True)["e-coherence"]
    assert value.reason == "does not apply: d=1 has two directions, and A=5 answers need one each"
