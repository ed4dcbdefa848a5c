"""Bound: a statement about what can be memorised, as an object; and what it says in one setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from membench.errors import NotApplicable
from membench.facts import Facts, Shape

# associations: contexts of these facts that are answered right.  capacity: the most contexts for which every
# labelling can be memorised, whatever the facts at hand.  kl: divergence in nats.
Quantity = Literal["accuracy", "associations", "capacity", "kl", "parameters", "bits_per_parameter"]
Direction = Literal["lower", "upper", "baseline", "order"]
Claim = Literal["guarantee", "limit", "baseline", "order"]
Status = Literal["applies", "vacuous", "order", "does not apply", "failed"]

_SMALLER_IS_BETTER = ("kl", "parameters", "bits_per_parameter")


class Vacuous(NotApplicable):
    """Raised by a bound that applies but says nothing; its text is the reason."""


@dataclass(frozen=True)
class Setting:
    """What a bound may look at. It never sees weights: what is proven does not depend on training."""

    architecture: str
    config: Any
    facts: Facts
    parameters: int | None = None  # trainable numbers of the model, when it is known
    bits: int = 32  # that each of them is stored in

    @property
    def shape(self) -> Shape:
        return self.facts.shape


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A statement about what every model, or every well chosen model, of an architecture reaches.

    A lower bound on accuracy is a guarantee: some weights reach at least this. An upper bound is a
    limit: no weights exceed it. For a divergence it is the other way round. `baseline` marks the
    figure of a simpler or another model, drawn for comparison; `order` a result that is known only
    up to a constant, which no model can meet or miss. `value` raises NotApplicable with a reason
    outside the bound's validity, and Vacuous where it applies but says nothing.
    """

    name: str
    summary: str
    formula: str
    quantity: Quantity
    direction: Direction
    reference: str
    value: Callable[[Setting], float]
    architecture: str | None = None  # None: holds whatever the architecture
    latex: str = ""
    inputs: tuple[str, ...] = ()  # what the value depends on
    expected: bool = False  # holds on average over independent, uniformly random labels, not for each labelling
    expensive: bool = False  # takes longer than a few milliseconds
    restricted_to: str | None = None  # the models or the sense that it is limited to, None: all of the architecture

    @property
    def claim(self) -> Claim:
        """What is claimed: that some weights do as well (guarantee), or that none do better (limit)."""
        if self.direction == "baseline" or self.direction == "order":
            return self.direction
        return "guarantee" if (self.direction == "upper") == (self.quantity in _SMALLER_IS_BETTER) else "limit"


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


def evaluate_bounds(bounds: Iterable[Bound], setting: Setting, *, expensive: bool = False) -> list[BoundValue]:
    """Every bound that speaks of this architecture, with its value or why it does not apply.

    Expensive ones are left out unless asked for.
    """
    speaking = (bound for bound in bounds if bound.architecture in (None, setting.architecture))
    return [_evaluate(bound, setting) for bound in speaking if expensive or not bound.expensive]


def _evaluate(bound: Bound, setting: Setting) -> BoundValue:
    blank = BoundValue(
        bound.name, bound.quantity, bound.direction, None, expected=bound.expected, restricted_to=bound.restricted_to
    )
    try:
        value = float(bound.value(setting))
        idle = _idle(bound, value, setting.facts)
    except Vacuous as error:
        return replace(blank, status="vacuous", reason=f"vacuous: {error}")
    except NotApplicable as error:
        return replace(blank, status="does not apply", reason=f"does not apply: {error}")
    except Exception as error:  # a bound that breaks must cost its own row, not the trial
        return replace(blank, status="failed", reason=f"failed: {type(error).__name__}: {error}")
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
    if key == ("accuracy", "lower") and value <= 1 / facts.vocab:
        return f"{value:.4g} is no more than a guess, 1/N = {1 / facts.vocab:.4g}"
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
    return math.log(facts.vocab) - float(facts.prior @ facts.entropies())


def accuracy_of(memorised: float, facts: Facts) -> float:
    """Expected accuracy of a model that knows `memorised` associations and guesses the rest: the map phi."""
    chance = 1 / facts.vocab
    return chance + (1 - chance) * min(memorised, len(facts)) / len(facts)


def associations_of(accuracy: float, facts: Facts) -> float:
    """Memorised associations that an accuracy stands for: the inverse of phi."""
    chance = 1 / facts.vocab
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
        formula=f"1/N + (1 - 1/N) X/T0 with X = {bound.formula}",
        latex=rf"\frac1N+\left(1-\frac1N\right)\frac{{X}}{{T_0}},\quad X={bound.latex}",
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
