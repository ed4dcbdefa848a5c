"""The look-up table as a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from membench.api import Shape
from membench_lookup import LookupConfig


class Lookup(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: the context's row of the table."""

    def __init__(self, shape: Shape, config: LookupConfig) -> None:
        super().__init__()
        self.shape = shape
        self.table = nn.Embedding(shape.vocab**shape.length, shape.answers)
        # Small, so that training starts near the uniform distribution; not zero, so that no two logits are equal.
        nn.init.normal_(self.table.weight, std=0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.table(self._rows(tokens))
        return logits  # [batch, A]

    def _rows(self, tokens: Tensor) -> Tensor:
        """The row of each context, int64[batch]: its tokens as the digits of a number in base N."""
        N, S, _ = self.shape
        places = torch.tensor([N ** (S - 1 - s) for s in range(S)], device=tokens.device)
        return (tokens * places).sum(1)
