"""What theory says of measured numbers: limits that no weights can beat, and guarantees that training missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Bits by which random facts may happen to suit a model. For given weights the answers a_t are worth
# prod_t A q(a_t | t) = 2^bits, which is 1 on average over uniform answers. So 2^b sets of weights have one that is
# worth 2^(b + LUCK) with a probability of at most 2^-LUCK (Markov).
LUCK = 32
# The share of the stored bits that a model may know. A rule and no theorem: training is known to reach about a tenth
# (two to four of 32 bits), and more than half takes code that packs labels into the digits of floats.
USABLE = 0.5
EXACT = 1e-6  # relative, what sums may be off by
_BETTER = {("accuracy", "upper"): 1, ("associations", "upper"): 1, ("kl", "lower"): -1}  # which way is too good


def broken_limits(
    metrics: Mapping[str, Any], bounds: Iterable[Mapping[str, Any]], learned_bits: int | None
) -> list[str]:
    """A sentence for each limit that the metrics break: those of the bounds, and that of the bits that are stored."""
    return [*_beyond_bounds(metrics, bounds), *_beyond_storage(metrics, learned_bits)]


def missed_guarantee(metrics: Mapping[str, Any], bounds: Iterable[Mapping[str, Any]]) -> str:
    """A sentence when theory knows better weights for the same model than were found; else empty."""
    proven = [
        (bound["value"], bound["name"])
        for bound in bounds
        if bound.get("quantity") == "accuracy" and bound.get("direction") == "lower" and _holds_for_all(bound)
    ]
    value, name = max(proven, default=(0.0, ""))
    accuracy = metrics.get("accuracy")
    if accuracy is None or accuracy >= value - EXACT:
        return ""
    return f"below what is proven: {name} guarantees an accuracy of {value:.4g}, and {accuracy:.4g} was found"


def _holds_for_all(bound: Mapping[str, Any]) -> bool:
    """Not for some models only, nor on average only."""
    known = bound.get("value") is not None and bound.get("status") == "applies"
    return known and not bound.get("expected") and not bound.get("restricted_to")


def _beyond_bounds(metrics: Mapping[str, Any], bounds: Iterable[Mapping[str, Any]]) -> list[str]:
    """Bounds for some models only, or on average only, are left out; the latter follow from the stored bits."""
    broken = []
    for bound in bounds:
        sign = _BETTER.get((bound.get("quantity"), bound.get("direction")))  # type: ignore[arg-type]
        value, reached = bound.get("value"), metrics.get(str(bound.get("quantity")))
        if sign is None or reached is None or value is None or not _holds_for_all(bound):
            continue
        if sign * (reached - value) > EXACT * max(1.0, abs(value)):
            than = "more" if sign > 0 else "less"
            whose = f" ({bound['provider']})" if bound.get("provider") else ""
            broken.append(
                f"{bound['quantity']} is {reached:.6g}, {than} than the {value:.6g} of the bound "
                f"{bound['name']}{whose}, which no weights can beat"
            )
    return broken


def _beyond_storage(metrics: Mapping[str, Any], learned_bits: int | None) -> list[str]:
    if learned_bits is None:  # a record from before it was counted
        return []
    known = {name: metrics[name] for name in ("bits", "bits_of_accuracy") if metrics.get(name) is not None}
    return [f"{name} is {bits:.6g}, {why}" for name, bits in known.items() if (why := _too_many(bits, learned_bits))]


def _too_many(bits: float, learned_bits: int) -> str:
    """Why a model with so many bits of weights cannot have learned these; empty if it can."""
    if bits > (learned_bits + LUCK) * (1 + EXACT):
        return (
            f"more than the {learned_bits:,} bits that its parameters are stored in: "
            "the model knows what is not in its weights"
        )
    if bits > (USABLE * learned_bits + LUCK) * (1 + EXACT):
        return (
            f"more than half of the {learned_bits:,} bits that its parameters are stored in: "
            "labels are packed into their digits, which no training does"
        )
    return ""
