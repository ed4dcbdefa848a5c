"""The hashed n-gram table as a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from membench.api import Shape
from membench_hashed_ngram import HashedNgramConfig
from membench_hashed_ngram.hashing import slot


class HashedNgram(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: the rows of a context, side by side, and a linear map."""

    def __init__(self, shape: Shape, config: HashedNgramConfig) -> None:
        super().__init__()
        self.tables = nn.Parameter(torch.randn(config.hashes, config.M, config.d))
        self.unembed = nn.Linear(config.hashes * config.d, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        M = self.tables.shape[1]
        rows = [table[slot(tokens, number, M)] for number, table in enumerate(self.tables)]  # each [batch, d]
        logits: Tensor = self.unembed(torch.cat(rows, dim=1))
        return logits  # [batch, A]
