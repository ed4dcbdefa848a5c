"""The sequence encoder as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from membench.api import Shape
from membench_sequence_encoder import SequenceEncoderConfig


class SequenceEncoder(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A] of rank d: a row of a table, unembedded."""

    def __init__(self, shape: Shape, config: SequenceEncoderConfig) -> None:
        super().__init__()
        self.shape = shape
        self.table = nn.Embedding(shape.vocab**shape.length, config.d)
        self.unembed = nn.Linear(config.d, shape.answers, bias=False)
        for weight in self.parameters():
            nn.init.uniform_(weight, -1 / math.sqrt(config.d), 1 / math.sqrt(config.d))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.unembed(self.table(self._rows(tokens)))
        return logits  # [batch, A]

    def _rows(self, tokens: Tensor) -> Tensor:
        """The row of each context, int64[batch]: its tokens as the digits of a number in base N."""
        N, S, _ = self.shape
        places = torch.tensor([N ** (S - 1 - s) for s in range(S)], device=tokens.device)
        return (tokens * places).sum(1)
