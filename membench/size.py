"""The size of a model, counted by us from the module itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from membench.facts import Shape


@dataclass(frozen=True)
class Size:
    """Numbers of scalars. Shared tensors count once; frozen tensors that are not parameters are buffers."""

    parameters: int
    without_embeddings: int
    buffers: int
    without_gradient: int = 0  # parameters that the loss does not reach
    identifiable: int | None = None  # parameters less those whose changes others can undo, where that is known


def measure_size(module: nn.Module, shape: Shape, embeddings: tuple[str, ...] = ()) -> Size:
    """Parameters, parameters that are not embeddings, and buffers (those left out of the state dict too)."""
    names: dict[nn.Parameter, list[str]] = {}  # a tensor that is used twice has two names and counts once
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    total = sum(parameter.numel() for parameter in names)
    tables = sum(p.numel() for p, known_as in names.items() if _is_embedding(p, known_as, shape, embeddings))
    return Size(total, total - tables, sum(b.numel() for b in module.buffers()))


def _is_embedding(parameter: nn.Parameter, names: Iterable[str], shape: Shape, prefixes: Iterable[str]) -> bool:
    """A declared embedding counts as one only if it is what the word says: one row per token or position."""
    declared = any(name == prefix or name.startswith(prefix + ".") for name in names for prefix in prefixes)
    return declared and parameter.dim() == 2 and parameter.shape[0] in (shape.vocab, shape.length)


def count_without_gradient(module: nn.Module, tokens: torch.Tensor) -> int:
    """Parameters that receive no gradient at all from the logits of these tokens."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    frozen = sum(p.numel() for p in module.parameters() if not p.requires_grad)
    if not parameters:
        return frozen
    loss = torch.logsumexp(module(tokens), dim=-1).sum()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return frozen + sum(p.numel() for p, g in zip(parameters, gradients, strict=True) if g is None)
