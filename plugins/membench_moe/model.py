"""The mixture of experts as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from membench.api import Shape
from membench_moe import MoEConfig


class MoE(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A].

    Every expert is computed and those that were not chosen are multiplied by zero: for models of this size one
    product for all is faster than sorting contexts by expert, and torch.func can batch it. The answers and the
    gradients are those of sparse experts. There is no loss that balances the load: the protocol owns the loss.
    """

    def __init__(self, shape: Shape, config: MoEConfig) -> None:
        super().__init__()
        d, experts, w = config.d, config.experts, config.w
        self.k = config.k
        self.tables = nn.ModuleList(nn.Embedding(shape.vocab, d) for _ in range(shape.length))
        self.router = nn.Parameter(torch.randn(experts, d) / math.sqrt(d))
        self.hidden = nn.Parameter(torch.randn(experts, w, d) * math.sqrt(2 / d))
        self.bias = nn.Parameter(torch.zeros(experts, w))
        self.project = nn.Parameter(torch.randn(experts, d, w) / math.sqrt(w))
        self.unembed = nn.Linear(d, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = [table(tokens[:, position]) for position, table in enumerate(self.tables)]
        stream = torch.stack(rows).sum(0) / math.sqrt(len(rows))  # [batch, d]
        neurons = relu(torch.einsum("bd,ewd->bew", stream, self.hidden) + self.bias)
        said = torch.einsum("bew,edw->bed", neurons, self.project)  # what each expert would add
        stream = stream + torch.einsum("be,bed->bd", self._shares(stream), said)
        logits: Tensor = self.unembed(stream)
        return logits  # [batch, A]

    def _shares(self, stream: Tensor) -> Tensor:
        """How much each expert counts, [batch, experts]: a softmax over the k with the highest scores."""
        scores = stream @ self.router.T
        least = scores.topk(self.k, dim=1).values[:, -1:]
        return scores.masked_fill(scores < least, -math.inf).softmax(1)
