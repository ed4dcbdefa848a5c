"""Bound: a statement about what can be memorised, as an object, and the setting that it is asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from membench.errors import NotApplicable
from membench.interface.facts import Facts, Shape
from membench.interface.origin import UNKNOWN, Origin

# associations: contexts of these facts that are answered right.  capacity: the most contexts for which every
# labelling can be memorised, whatever the facts at hand.  kl: divergence in nats.
Quantity = Literal["accuracy", "associations", "capacity", "kl", "parameters", "bits_per_parameter"]
Direction = Literal["lower", "upper", "reference", "order", "reported"]
Claim = Literal["guarantee", "limit", "reference", "order", "reported"]

_SMALLER_IS_BETTER = ("kl", "parameters", "bits_per_parameter")


class Vacuous(NotApplicable):
    """Raised by a bound that applies but says nothing; its text is the reason."""


@dataclass(frozen=True)
class Setting:
    """What a bound may look at. It never sees weights: what is proven does not depend on training."""

    architecture: str  # its name
    config: Any  # of the architecture, as its dataclass
    facts: Facts
    parameters: int | None = None  # trainable numbers of the model, when it is known
    bits: int | None = None  # that each of them is stored in, when it is known: those of the weights' float type

    @property
    def shape(self) -> Shape:
        return self.facts.shape


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A statement about what every model, or every well chosen model, of an architecture reaches.

    A lower bound on accuracy is a guarantee: some weights reach at least this. An upper bound is a
    limit: no weights exceed it. For a divergence it is the other way round. `reference` marks the
    figure of a simpler or another model, drawn for comparison; `order` a result that is known only
    up to a constant, which no model can meet or miss; `reported` an empirical law, which others
    measured in the setting that `restricted_to` names, and which nothing violates. `value` raises
    NotApplicable with a reason outside the bound's validity, and Vacuous where it applies but says
    nothing.
    """

    name: str
    summary: str  # one sentence
    formula: str  # in plain text
    quantity: Quantity  # that the value is one of
    direction: Direction  # on which side of it the truth lies
    reference: str  # citation
    value: Callable[[Setting], float]
    architecture: str | None = None  # None: holds whatever the architecture
    latex: str = ""  # the formula for figures
    expected: bool = False  # holds on average over independent, uniformly random labels, not for each labelling
    expensive: bool = False  # takes longer than a few milliseconds
    restricted_to: str | None = None  # the models or the sense that it is limited to, None: all of the architecture
    origin: Origin = UNKNOWN  # set by the registry

    @property
    def claim(self) -> Claim:
        """What is claimed: that some weights do as well (guarantee), or that none do better (limit)."""
        if self.direction == "reference" or self.direction == "order" or self.direction == "reported":
            return self.direction
        return "guarantee" if (self.direction == "upper") == (self.quantity in _SMALLER_IS_BETTER) else "limit"
