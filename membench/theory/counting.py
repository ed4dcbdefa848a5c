"""Counting: how much a given number of stored bits, or of free signs, can at most memorise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from membench.errors import NotApplicable
from membench.interface.bound import Bound, Setting
from membench.interface.facts import Facts


def rate(accuracy: float, A: int) -> float:
    """Bits that each uniformly random label among A costs at an expected accuracy: the rate-distortion function.

    log2 A - h2(a) - (1 - a) log2(A - 1) for a >= 1/A, and 0 below, where guessing is enough.
    """
    if accuracy <= 1 / A:
        return 0.0
    wrong = 1 - accuracy
    cost = math.log2(A) + accuracy * math.log2(accuracy)
    return cost + (wrong * math.log2(wrong / (A - 1)) if wrong > 0 else 0.0)


def most_accurate(bits: float, contexts: int, A: int) -> float:
    """The largest expected accuracy on `contexts` random labels that `bits` can pay for."""
    if bits >= contexts * math.log2(A):
        return 1.0
    return _largest(lambda accuracy: contexts * rate(accuracy, A) <= bits, 1 / A, 1.0)


def shattered(A: int, unknowns: int) -> float:
    """The most contexts of which a linear readout with `unknowns` free numbers can realise every labelling.

    Each labelling of T contexts is a cell of the arrangement of the T A(A-1)/2 hyperplanes on which two of a
    context's logits tie, and D unknowns have at most 2 (e T A(A-1) / (2D))^D cells (Warren): so
    T log A <= log 2 + D log(e T A(A-1) / (2D)).
    """
    if A < 2:
        return math.inf

    def possible(contexts: float) -> bool:
        cells = math.log(2) + unknowns * math.log(math.e * contexts * A * (A - 1) / (2 * unknowns))
        return contexts * math.log(A) <= cells

    low = unknowns / math.log(A)  # here the right-hand side grows no faster than the left from now on
    high = max(low, 1.0)
    while possible(high):
        high *= 2
    return _largest(possible, low, high)


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The boundary between `holds` and not, by bisection to the last digit."""
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return low
        if holds(middle):
            low = middle
        else:
            high = middle


def accuracy_of(memorised: float, facts: Facts) -> float:
    """Expected accuracy of a model that knows `memorised` associations and guesses the rest: the map phi."""
    chance = 1 / facts.answers
    return chance + (1 - chance) * min(memorised, len(facts)) / len(facts)


def associations_of(accuracy: float, facts: Facts) -> float:
    """Memorised associations that an accuracy stands for: the inverse of phi."""
    chance = 1 / facts.answers
    return len(facts) * (accuracy - chance) / (1 - chance)


def as_accuracy(bound: Bound, *, name: str, summary: str, reference: str | None = None) -> Bound:
    """A guaranteed number of associations as an expected accuracy, through phi."""

    def value(setting: Setting) -> float:
        require_uniform_labels(setting.facts)
        return accuracy_of(bound.value(setting), setting.facts)

    return replace(
        bound,
        name=name,
        summary=summary,
        formula=f"1/A + (1 - 1/A) X/T0 with X = {bound.formula}",
        latex=rf"\frac1A+\left(1-\frac1A\right)\frac{{X}}{{T_0}},\quad X={bound.latex}",
        quantity="accuracy",
        value=value,
        expected=True,
        reference=reference or bound.reference,
    )


def require_uniform_labels(facts: Facts) -> None:
    """For statements on average over labels: one label for each context, all contexts equally likely."""
    if not facts.is_association:
        raise NotApplicable("the targets are distributions, not one label for each context")
    if not np.allclose(facts.prior, 1 / len(facts), rtol=1e-9, atol=0):
        raise NotApplicable("the prior is not uniform over the contexts")
