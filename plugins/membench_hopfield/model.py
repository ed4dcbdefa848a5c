"""The modern Hopfield layer as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from membench.api import Shape
from membench_hopfield import HopfieldConfig


class Hopfield(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: U V^T softmax(beta X state), with patterns X and values V."""

    def __init__(self, shape: Shape, config: HopfieldConfig) -> None:
        super().__init__()
        d = config.d
        self.beta, self.updates = config.beta, config.updates
        self.tables = nn.ModuleList(nn.Embedding(shape.vocab, d) for _ in range(shape.length))
        self.patterns = nn.Parameter(torch.randn(config.M, d))
        self.values = nn.Parameter(torch.randn(config.M, d))
        self.unembed = nn.Linear(d, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = [table(tokens[:, position]) for position, table in enumerate(self.tables)]
        state = torch.stack(rows).sum(0) / math.sqrt(len(rows))  # [batch, d]
        for _ in range(self.updates - 1):
            state = self._overlaps(state) @ self.patterns  # the update rule: nearer to the nearest patterns
        logits: Tensor = self.unembed(self._overlaps(state) @ self.values)
        return logits  # [batch, A]

    def _overlaps(self, state: Tensor) -> Tensor:
        """How near each pattern is, [batch, M], adding up to 1."""
        return (self.beta * state @ self.patterns.T).softmax(1)
