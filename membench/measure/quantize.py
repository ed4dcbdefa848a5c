"""Weights in fewer bits: rounded once a training is over, so that the model can be asked again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from membench.measure.size import Fresh, is_learned, learned_tensors

if TYPE_CHECKING:
    import torch

BITS = {"int8": 8, "int4": 4, "bfloat16": 16}  # of a number
SCALE_BITS = 32  # of the one scale that a tensor of whole numbers has
MEASURED = ("accuracy", "kl", "bits", "bits_of_accuracy")  # of the metrics, those that are measured again
STORED = "learned_bits"


def quantized_name(metric: str, name: str) -> str:
    return f"{metric}@{name}"


def quantizations_of(metrics: Iterable[str]) -> list[str]:
    """Those that a record has numbers of, by the names of its metrics."""
    there = set(metrics)
    return [name for name in BITS if quantized_name(STORED, name) in there]


def quantized(state: Mapping[str, torch.Tensor], fresh: Fresh, name: str) -> dict[str, torch.Tensor]:
    """The same state with what was learned rounded, each tensor with a scale of its own; what was drawn stays."""
    return {
        key: _rounded(value, name) if is_learned(key, value, fresh) else value.detach().clone()
        for key, value in state.items()
    }


def stored_bits(state: Mapping[str, torch.Tensor], fresh: Fresh, name: str) -> int:
    """What the rounded numbers and their scales take; numbers that are not rounded take what they took."""
    return sum(_stored(value, name) for value in learned_tensors(state, fresh).values())


def _stored(value: torch.Tensor, name: str) -> int:
    if value.is_complex():
        return 2 * value.numel() * BITS[name] + _scale_bits(name)
    if value.is_floating_point():
        return value.numel() * BITS[name] + _scale_bits(name)
    return 8 * value.numel() * value.element_size()


def _scale_bits(name: str) -> int:
    return 0 if name == "bfloat16" else SCALE_BITS


def _rounded(value: torch.Tensor, name: str) -> torch.Tensor:
    import torch

    value = value.detach()
    if value.is_complex():
        return torch.view_as_complex(_rounded(torch.view_as_real(value.resolve_conj()), name))
    if not value.is_floating_point():
        return value.clone()
    if name == "bfloat16":
        return value.to(torch.bfloat16).to(value.dtype)
    most = 2 ** (BITS[name] - 1) - 1  # from -most to most: 0 is one of the numbers, and both signs have as many
    scale = value.abs().amax() / most if value.numel() else value.new_zeros(())
    if not scale > 0:
        return value.clone()
    return (value / scale).round().clamp(-most, most) * scale
