"""Bounds that hold for every model: counting bits, and looking at the last token only."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from membench.api import Facts, Setting
from membench.interface.facts import draw_facts
from membench.theory.counting import accuracy_of, most_accurate, rate, shattered
from membench.theory.evaluate import BoundValue, evaluate_bounds
from membench.theory.universal_bounds import expected_majority, expected_zero_head, membench_bounds, zero_head_accuracy
from membench_tasks.bigram import BIGRAM, BigramConfig


def evaluate(facts: Facts, parameters: int | None = None, bits: int | None = 32) -> dict[str, BoundValue]:
    setting = Setting("any", None, facts, parameters, bits)
    return {value.name: value for value in evaluate_bounds(membench_bounds(), setting, expensive=True)}


def bigrams(N: int, seed: int = 0, **options: int) -> Facts:
    return draw_facts(BIGRAM, BigramConfig(N=N, **options), seed)


@pytest.mark.parametrize(
    ("N", "accuracy", "bits"),
    [(50, 0.5, 1.836501), (50, 0.8044, 3.832579), (50, 0.9992, 5.629981), (50, 1, 5.643856), (10, 0.5, 0.736966)],
)
def test_rate(N: int, accuracy: float, bits: float) -> None:
    assert rate(accuracy, N) == pytest.approx(bits, abs=5e-7)


def test_guessing_costs_nothing() -> None:
    assert rate(0.02, 50) == rate(0.01, 50) == 0


@pytest.mark.parametrize(
    ("bits", "accuracy"), [(1000, 0.191567), (5020, 0.530079), (9020, 0.774547), (14109, 0.999989)]
)
def test_most_accurate(bits: int, accuracy: float) -> None:
    assert most_accurate(bits, 2500, 50) == pytest.approx(accuracy, abs=5e-7)


@given(st.integers(2, 40), st.integers(1, 60), st.data())
def test_remembering_some_labels_never_beats_the_information_bound(N: int, T0: int, data: st.DataObject) -> None:
    known = data.draw(st.integers(0, T0))
    reached = 1 / N + (1 - 1 / N) * known / T0
    assert reached <= most_accurate(known * math.log2(N), T0, N) + 1e-9


def test_bits_per_parameter_of_the_published_run() -> None:
    """N=50, d=d_h=10, H=20 has 9020 parameters and was published with an accuracy of 0.8044."""
    assert 2500 * rate(0.8044, 50) / 9020 == pytest.approx(1.06, abs=5e-3)


def test_information_as_a_bound() -> None:
    facts = bigrams(50)
    assert evaluate(facts, 9020, 1)["information"].value == pytest.approx(0.774547, abs=5e-7)
    assert evaluate(facts, 9020, 1)["information-capacity"].value == pytest.approx(9020 / math.log2(50))
    assert evaluate(facts, 9020)["required-bits"].value == pytest.approx(2500 * math.log2(50) / 9020)
    assert evaluate(facts, 9020)["information"].status == "vacuous"
    assert evaluate(facts)["information"].reason == "does not apply: the number of parameters is not known here"
    assert evaluate(facts, 9020, 64)["information-capacity"].value == pytest.approx(64 * 9020 / math.log2(50))
    for name in ("information", "information-capacity"):
        unknown = evaluate(facts, 9020, None)[name]
        assert unknown.reason == "does not apply: the number of bits of a parameter is not known here"
    assert evaluate(facts, 0)["information"].reason == "does not apply: the model has no parameters"


@pytest.mark.parametrize(
    ("N", "unknowns", "contexts"),
    [(50, 10 * 210, 4797.5), (50, 10 * 110, 2513.1), (10, 2 * 42, 208.9), (50, 2 * 42, 192.1)],
)
def test_shattered(N: int, unknowns: int, contexts: float) -> None:
    assert shattered(N, unknowns) == pytest.approx(contexts, abs=0.05)


def test_two_labels_and_one_direction() -> None:
    """One number with two labels: a line through zero shatters one point, and the bound must not say less."""
    assert shattered(2, 1) >= 1


@pytest.mark.parametrize(
    ("N", "accuracy", "digits"),
    [(10, 0.274869, 6), (20, 0.161562, 6), (50, 0.076109, 6), (70, 0.057334, 6), (200, 0.0231, 4)],
)
def test_expected_zero_head_of_all_bigrams(N: int, accuracy: float, digits: int) -> None:
    assert expected_majority(N, N) / N == pytest.approx(accuracy, abs=0.5 * 10**-digits)
    assert expected_zero_head(bigrams(N)) == pytest.approx(accuracy, abs=0.5 * 10**-digits)


@pytest.mark.parametrize(("N", "crossing"), [(10, 19.4), (20, 47.0), (50, 143.1), (70, 214.0), (200, 728)])
def test_how_many_associations_no_head_is_worth(N: int, crossing: float) -> None:
    facts = bigrams(N)
    below, above = accuracy_of(crossing * 0.995, facts), accuracy_of(crossing * 1.005, facts)
    assert below < expected_zero_head(facts) < above


@pytest.mark.parametrize(("draws", "N"), [(1, 3), (3, 2), (4, 3), (5, 4)])
def test_expected_majority_by_enumeration(draws: int, N: int) -> None:
    labellings = list(itertools.product(range(N), repeat=draws))
    largest = [max(labelling.count(k) for k in range(N)) for labelling in labellings]
    assert expected_majority(draws, N) == pytest.approx(sum(largest) / len(largest), abs=1e-12)


@pytest.mark.parametrize("A", [2, 7, 90])
def test_bits_and_guesses_are_about_answers_and_last_tokens_about_tokens(A: int) -> None:
    N, T0, stored = 10, 60, 100
    facts = bigrams(N, T0=T0, A=A)
    values = evaluate(facts, stored, 1)
    assert values["chance"].value == 1 / A
    assert values["information-capacity"].value == pytest.approx(stored / math.log2(A))
    assert values["required-bits"].value == pytest.approx(T0 * math.log2(A) / stored)
    if stored < T0 * math.log2(A):
        assert T0 * rate(values["information"].value or 0, A) == pytest.approx(stored)
    last = facts.inputs[:, 1]
    majority = sum(np.bincount(facts.targets[last == q]).max() for q in range(N)) / T0
    assert values["zero-head"].value == pytest.approx(majority)
    expected = sum(expected_majority(int((last == q).sum()), A) for q in range(N)) / T0
    assert values["zero-head-expected"].value == pytest.approx(expected)
    assert values["constant"].value == pytest.approx(np.bincount(facts.targets).max() / T0)
    assert values["kim"].value == pytest.approx(2 + N + math.sqrt(T0 * math.log(T0)))


@pytest.mark.parametrize("A", [3, 30])
def test_zero_head_of_random_tables_with_other_answers_is_near_its_expectation(A: int) -> None:
    tables = [bigrams(10, seed, A=A) for seed in range(40)]
    seen = [zero_head_accuracy(facts) for facts in tables]
    assert np.mean(seen) == pytest.approx(expected_zero_head(tables[0]), abs=4 * np.std(seen) / 40**0.5)


def test_zero_head_of_random_tables_is_near_its_expectation() -> None:
    seen = [zero_head_accuracy(bigrams(20, seed, T0=300)) for seed in range(30)]
    expected = np.mean([expected_zero_head(bigrams(20, seed, T0=300)) for seed in range(30)])
    assert np.mean(seen) == pytest.approx(expected, abs=4 * np.std(seen) / 30**0.5)


def test_zero_head_of_a_table() -> None:
    inputs = np.array([[0, 0], [1, 0], [2, 0], [0, 1]], dtype=np.int64)
    labels = np.array([1, 1, 2, 0], dtype=np.int64)
    facts = Facts(inputs, labels, np.array([0.1, 0.2, 0.4, 0.3]), 3)
    values = evaluate(facts)
    assert values["zero-head"].value == pytest.approx(0.4 + 0.3)
    assert values["constant"].value == pytest.approx(0.4)
    assert values["chance"].value == pytest.approx(1 / 3)
    assert values["bayes"].value == pytest.approx(1)
    assert values["support"].value == 4


def test_zero_head_of_distributions() -> None:
    inputs = np.array([[0], [1]], dtype=np.int64)
    targets = np.array([[0.7, 0.3], [0.4, 0.6]])
    values = evaluate(Facts(inputs, targets, np.array([0.5, 0.5]), 2))
    assert values["zero-head"].value == values["bayes"].value == pytest.approx(0.65)
    assert values["constant"].value == pytest.approx(0.55)
    assert values["zero-head-expected"].status == "does not apply"


@pytest.mark.parametrize(("T0", "order"), [(100, 21.460), (2500, 139.857), (40000, 651.049)])
def test_kim_is_an_order(T0: int, order: float) -> None:
    facts = bigrams(200, T0=T0)
    value = evaluate(facts)["kim"]
    assert value.status == "order"
    assert value.value == pytest.approx(order + 2 + 200, abs=5e-4)
