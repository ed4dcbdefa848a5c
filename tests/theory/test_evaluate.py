"""Bounds as objects: what becomes of a value, of a reason, and of nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from membench.api import Bound, Facts, NotApplicable, Setting
from membench.interface.bound import Vacuous
from membench.theory.counting import accuracy_of, as_accuracy, associations_of
from membench.theory.evaluate import BoundValue, evaluate_bounds


def make_facts(N: int = 50, T0: int = 2500, prior: list[float] | None = None, A: int | None = None) -> Facts:
    contexts = np.stack([np.arange(T0) // N, np.arange(T0) % N], axis=1).astype(np.int64)
    masses = np.full(T0, 1 / T0) if prior is None else np.array(prior)
    return Facts(contexts, np.arange(T0, dtype=np.int64) % (A or N), masses, N, A)


def make_bound(value: Callable[[Setting], float], **fields: Any) -> Bound:
    defaults = {
        "name": "mine",
        "summary": "",
        "formula": "X",
        "latex": "X",
        "quantity": "accuracy",
        "direction": "lower",
        "reference": "",
    }
    return Bound(**{**defaults, **fields}, value=value)


def evaluate(value: Callable[[Setting], float], facts: Facts | None = None, **fields: Any) -> BoundValue:
    setting = Setting("aot", SimpleNamespace(d=2), facts or make_facts())
    return evaluate_bounds([make_bound(value, **fields)], setting, expensive=True)[0]


def raising(error: Exception) -> Callable[[Setting], float]:
    def value(setting: Setting) -> float:
        raise error

    return value


def test_a_value_applies() -> None:
    result = evaluate(lambda setting: 0.5, expected=True, restricted_to="me")
    assert (result.value, result.status, result.reason) == (0.5, "applies", None)
    assert result.expected
    assert result.restricted_to == "me"


def test_a_value_says_which_distribution_brought_the_bound() -> None:
    assert evaluate(lambda setting: 0.5).provider == ""
    assert evaluate(lambda setting: 0.5, origin=SimpleNamespace(distribution="theirs")).provider == "theirs"
    failed = evaluate(raising(KeyError("d")), origin=SimpleNamespace(distribution="theirs"))
    assert (failed.status, failed.provider) == ("failed", "theirs")


def test_outside_its_validity_a_bound_says_why() -> None:
    result = evaluate(raising(NotApplicable("d_h=5 > d=2")))
    assert (result.value, result.status, result.reason) == (None, "does not apply", "does not apply: d_h=5 > d=2")


def test_a_bound_that_breaks_costs_its_own_row() -> None:
    result = evaluate(raising(KeyError("d")))
    assert (result.value, result.status) == (None, "failed")
    assert result.reason == "failed: KeyError: 'd'"


@pytest.mark.parametrize(
    ("quantity", "direction", "value", "reason"),
    [
        ("kl", "upper", 5.0, "5 is more than the 3.912 of zero logits"),
        ("kl", "lower", 0.0, "no divergence is negative"),
        ("accuracy", "lower", 0.02, "0.02 is no more than a guess, 1/A = 0.02"),
        ("accuracy", "upper", 1.5, "1.5 is more than the 1 of the best possible model"),
        ("associations", "upper", 2501, "2501 is more than the 2500 that there are"),
        ("capacity", "upper", 2501, "2501 is more than the 2500 contexts that exist"),
        ("associations", "lower", 0, "nothing is guaranteed"),
        ("capacity", "lower", 0, "nothing is guaranteed"),
        ("accuracy", "upper", math.inf, "not a finite number"),
    ],
)
def test_a_bound_that_says_nothing_is_vacuous(quantity: str, direction: str, value: float, reason: str) -> None:
    result = evaluate(lambda setting: value, quantity=quantity, direction=direction)
    assert result.status == "vacuous"
    assert reason in str(result.reason)
    assert result.value == (value if math.isfinite(value) else None)


@pytest.mark.parametrize(
    ("quantity", "direction", "value"),
    [("kl", "upper", math.log(50)), ("accuracy", "upper", 1.0), ("associations", "upper", 2500), ("kl", "lower", 1e-9)],
)
def test_a_bound_that_says_as_much_as_the_trivial_one_applies(quantity: str, direction: str, value: float) -> None:
    assert evaluate(lambda setting: value, quantity=quantity, direction=direction).status == "applies"


def test_a_bound_may_say_itself_that_it_is_vacuous() -> None:
    assert evaluate(raising(Vacuous("C=3.5"))).reason == "vacuous: C=3.5"


@pytest.mark.parametrize("value", [12.0, math.nan])
def test_an_order_is_shown_as_an_order(value: float) -> None:
    result = evaluate(lambda setting: value, direction="order", quantity="parameters")
    assert result.status == "order"
    assert result.value == (None if math.isnan(value) else value)
    assert "order only" in str(result.reason)


def test_expensive_bounds_and_those_of_others_are_left_out() -> None:
    def one(setting: Setting) -> float:
        return 1.0

    bounds = [
        make_bound(one, name="cheap"),
        make_bound(one, name="dear", expensive=True),
        make_bound(one, name="other", architecture="lookup"),
        make_bound(one, name="own", architecture="aot"),
    ]
    setting = Setting("aot", None, make_facts())
    assert [value.name for value in evaluate_bounds(bounds, setting)] == ["cheap", "own"]
    assert [value.name for value in evaluate_bounds(bounds, setting, expensive=True)] == ["cheap", "dear", "own"]


@pytest.mark.parametrize(
    ("quantity", "direction", "claim"),
    [
        ("accuracy", "lower", "guarantee"),
        ("accuracy", "upper", "limit"),
        ("capacity", "upper", "limit"),
        ("associations", "lower", "guarantee"),
        ("kl", "lower", "limit"),
        ("kl", "upper", "guarantee"),
        ("parameters", "upper", "guarantee"),
        ("kl", "order", "order"),
        ("accuracy", "reference", "reference"),
    ],
)
def test_what_a_bound_claims(quantity: str, direction: str, claim: str) -> None:
    assert make_bound(lambda setting: 0.0, quantity=quantity, direction=direction).claim == claim


@pytest.mark.parametrize(
    ("N", "T0", "memorised", "accuracy"),
    [
        (50, 2500, 210, 0.102320),
        (50, 2500, 110, 0.063120),
        (50, 2500, 20, 0.027840),
        (10, 100, 42, 0.478000),
        (10, 100, 44, 0.496000),
        (10, 100, 107, 1.0),
        (200, 40000, 600, 0.019925),
        (50, 2500, 600, 0.255200),
        (50, 2500, 181, 0.090952),
        (50, 2500, 81, 0.051752),
        (10, 100, 21, 0.289000),
        (50, 2500, 21, 0.028232),
        (50, 2500, 150, 0.078800),
        (200, 40000, 475, 0.016816),
    ],
)
def test_phi(N: int, T0: int, memorised: float, accuracy: float) -> None:
    assert accuracy_of(memorised, make_facts(N, T0)) == pytest.approx(accuracy, abs=5e-7)


@pytest.mark.parametrize("A", [2, 200])
def test_phi_guesses_among_the_answers(A: int) -> None:
    facts = make_facts(50, 2500, A=A)
    assert accuracy_of(0, facts) == 1 / A
    assert accuracy_of(1250, facts) == pytest.approx((1 + 1 / A) / 2)
    assert associations_of(accuracy_of(210, facts), facts) == pytest.approx(210)


@pytest.mark.parametrize(
    ("A", "quantity", "direction", "value", "status"),
    [
        (2, "accuracy", "lower", 0.4, "vacuous"),
        (200, "accuracy", "lower", 0.01, "applies"),
        (2, "kl", "upper", 0.7, "vacuous"),
        (200, "kl", "upper", 5.2, "applies"),
        (200, "capacity", "upper", 2501, "vacuous"),  # contexts are made of tokens
        (2, "capacity", "upper", 2499, "applies"),
    ],
)
def test_what_is_plain_anyway_depends_on_the_answers(
    A: int, quantity: str, direction: str, value: float, status: str
) -> None:
    facts = make_facts(A=A)
    assert evaluate(lambda setting: value, facts, quantity=quantity, direction=direction).status == status


def test_phi_and_its_inverse() -> None:
    facts = make_facts()
    assert associations_of(0.8044, facts) == pytest.approx(2001.02, abs=5e-3)
    assert associations_of(accuracy_of(123.4, facts), facts) == pytest.approx(123.4)


def test_an_accuracy_on_average_needs_labels_and_a_uniform_prior() -> None:
    bound = as_accuracy(make_bound(lambda setting: 2.0, quantity="associations"), name="phi", summary="")
    uneven = Setting("aot", None, make_facts(2, 4, [0.4, 0.2, 0.2, 0.2]))
    spread = Setting("aot", None, Facts(np.array([[0]], dtype=np.int64), np.array([[0.5, 0.5]]), np.ones(1), 2))
    even = Setting("aot", None, make_facts(2, 4))
    assert evaluate_bounds([bound], uneven)[0].reason == "does not apply: the prior is not uniform over the contexts"
    assert "not one label" in str(evaluate_bounds([bound], spread)[0].reason)
    assert evaluate_bounds([bound], even)[0].value == 0.75
    assert bound.expected
