"""Bounds in one setting: each with its value, or the reason why it has none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from membench.errors import NotApplicable, in_words
from membench.interface.bound import Bound, Setting, Vacuous
from membench.interface.facts import Facts

Status = Literal["applies", "vacuous", "order", "does not apply", "failed"]


@dataclass(frozen=True)
class BoundValue:
    """A bound evaluated in one setting: a number, or the reason why there is none. A vacuous one may have both."""

    name: str
    quantity: str
    direction: str
    value: float | None
    reason: str | None = None
    status: Status = "applies"
    expected: bool = False
    restricted_to: str | None = None
    provider: str = ""  # the distribution that brought the bound


def evaluate_bounds(bounds: Iterable[Bound], setting: Setting, *, expensive: bool = False) -> list[BoundValue]:
    """Every bound that speaks of this architecture, with its value or why it does not apply.

    Expensive ones are left out unless asked for.
    """
    speaking = (bound for bound in bounds if bound.architecture in (None, setting.architecture))
    return [_evaluate(bound, setting) for bound in speaking if expensive or not bound.expensive]


def _evaluate(bound: Bound, setting: Setting) -> BoundValue:
    blank = BoundValue(
        name=bound.name,
        quantity=bound.quantity,
        direction=bound.direction,
        value=None,
        expected=bound.expected,
        restricted_to=bound.restricted_to,
        provider=bound.origin.distribution,
    )
    try:
        value = float(bound.value(setting))
        idle = _idle(bound, value, setting.facts)
    except Vacuous as error:
        return replace(blank, status="vacuous", reason=f"vacuous: {error}")
    except NotApplicable as error:
        return replace(blank, status="does not apply", reason=f"does not apply: {error}")
    except (Exception, SystemExit) as error:  # a bound that breaks must cost its own row, not the trial
        return replace(blank, status="failed", reason=f"failed: {in_words(error)}")
    if bound.direction == "order":
        number = value if math.isfinite(value) else None
        return replace(blank, value=number, status="order", reason="order only: the constant is not known")
    if not math.isfinite(value):
        return replace(blank, status="vacuous", reason="vacuous: not a finite number")
    if idle:
        return replace(blank, value=value, status="vacuous", reason=f"vacuous: {idle}")
    return replace(blank, value=value)


def _idle(bound: Bound, value: float, facts: Facts) -> str:
    """Why a bound says no more than is plain without it; empty when it says more, or as much."""
    key = (bound.quantity, bound.direction)
    if key == ("kl", "upper") and value > (trivial := _divergence_of_zero_logits(facts)) * (1 + 1e-9):
        return f"{value:.4g} is more than the {trivial:.4g} of zero logits"
    if key == ("kl", "lower") and value <= 0:
        return "no divergence is negative"
    if key == ("accuracy", "lower") and value <= 1 / facts.answers:
        return f"{value:.4g} is no more than a guess, 1/A = {1 / facts.answers:.4g}"
    if key == ("accuracy", "upper") and value > (best := facts.bayes_accuracy()) + 1e-9:
        return f"{value:.4g} is more than the {best:.4g} of the best possible model"
    if key == ("associations", "upper") and value > len(facts):
        return f"{value:.6g} is more than the {len(facts)} that there are"
    if key == ("capacity", "upper") and value > (every := facts.vocab**facts.shape.length):
        return f"{value:.6g} is more than the {every} contexts that exist"
    if key in (("associations", "lower"), ("capacity", "lower")) and value <= 0:
        return "nothing is guaranteed"
    return ""


def _divergence_of_zero_logits(facts: Facts) -> float:
    return math.log(facts.answers) - float(facts.prior @ facts.entropies())
