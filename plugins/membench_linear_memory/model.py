"""The linear associative memory as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize

from membench.api import Shape
from membench_linear_memory import LinearMemoryConfig

# Between unit vectors, a matrix must have entries of this order to be sure of an answer. Adam moves a weight
# by about its learning rate in a step, so that with weights of order 1 the rates that suit other models suit it.
GAIN = 32.0


class LinearMemory(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: U W x, with x the frozen unit vector of the context.

    What is trained is W / GAIN.

    A table of N^S context vectors is never made. Each token has random phases at each position, a
    context adds those of its tokens, and x is their cosine, normalised: the real part of a binding of
    phasors (Plate, 'Holographic Reduced Representations', IEEE Transactions on Neural Networks 6,
    1995). The phases of any two contexts are then independent and uniform, as if they had been drawn
    for each; products of random signs, the simpler binding, give some contexts the same vector.
    """

    phases: Tensor
    outputs: Tensor

    def __init__(self, shape: Shape, config: LinearMemoryConfig) -> None:
        super().__init__()
        N, S, A = shape
        self.register_buffer("phases", 2 * math.pi * torch.rand(S, N, config.d))
        self.register_buffer("outputs", normalize(torch.randn(A, config.d), dim=1))
        # Zero would do for a convex loss, but its logits are all equal, and no answer is then the largest.
        self.weight = nn.Parameter(0.01 / GAIN * torch.randn(config.d, config.d))

    @property
    def matrix(self) -> Tensor:
        """W, [d, d]."""
        return GAIN * self.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.contexts(tokens) @ self.matrix.T @ self.outputs.T

    def contexts(self, tokens: Tensor) -> Tensor:
        """The unit vectors of contexts, [batch, d]."""
        S, N, _ = self.phases.shape
        places = tokens + N * torch.arange(S, device=tokens.device)
        bound = embedding(places, self.phases.flatten(0, 1)).sum(1)  # [batch, d]
        return normalize(bound.cos(), dim=1)
