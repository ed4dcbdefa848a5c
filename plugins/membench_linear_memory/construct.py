"""Closed-form weights of the linear associative memory.

Both write the association of each context with the mean of the output vectors of its answers,
which is the output vector of its label when it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from membench.api import Facts
from membench_linear_memory.model import GAIN, LinearMemory


def hebb(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """The sum of outer products, each as often as its context is likely (once, when all are alike)."""
    memory = cast("LinearMemory", module)
    inputs, outputs = _associations(memory, facts)
    often = torch.from_numpy(facts.prior * len(facts)).to(inputs)
    _fill(memory, outputs.T @ (often[:, None] * inputs))
    return _spectrum(inputs)


def pseudo_inverse(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """The least-squares solution, which is exact for as many contexts as have independent vectors: up to d."""
    memory = cast("LinearMemory", module)
    inputs, outputs = _associations(memory, facts)
    _fill(memory, (torch.linalg.pinv(inputs) @ outputs).T)
    return _spectrum(inputs)


def _associations(memory: LinearMemory, facts: Facts) -> tuple[Tensor, Tensor]:
    """The vector of each context and the one to associate with it, both [T, d]."""
    targets = torch.from_numpy(facts.distributions()).to(memory.outputs)
    return memory.contexts(torch.from_numpy(facts.inputs)), targets @ memory.outputs


def _fill(memory: LinearMemory, matrix: Tensor) -> None:
    with torch.no_grad():
        memory.weight.copy_(matrix / GAIN)


def _spectrum(inputs: Tensor) -> Mapping[str, Any]:
    """Rank and condition number of the contexts' vectors: what limits either rule."""
    values = torch.linalg.svdvals(inputs)
    rank = int((values > values[0] * max(inputs.shape) * torch.finfo(values.dtype).eps).sum())
    return {"rank": rank, "condition": float(values[0] / values[rank - 1])}
