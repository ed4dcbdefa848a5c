"""Product-key memory as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from membench.api import Shape
from membench_product_key import ProductKeyConfig


class ProductKeyMemory(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: a stream, what is read from the memory, and an unembedding."""

    def __init__(self, shape: Shape, config: ProductKeyConfig) -> None:
        super().__init__()
        d, n, heads = config.d, config.n, config.heads
        self.n = n
        self.k = min(config.k, n * n)
        self.tables = nn.ModuleList(nn.Embedding(shape.vocab, d) for _ in range(shape.length))
        self.query = nn.Parameter(torch.randn(heads, d, d) / math.sqrt(d))
        self.keys = nn.Parameter(torch.randn(heads, 2, n, d // 2) / math.sqrt(d))
        self.values = nn.Parameter(torch.randn(n * n, d) / math.sqrt(d))
        self.unembed = nn.Linear(d, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = [table(tokens[:, position]) for position, table in enumerate(self.tables)]
        stream = torch.stack(rows).sum(0) / math.sqrt(len(rows))  # [batch, d]
        scores, slots = self._nearest(stream)  # both [batch, heads, k]
        read = scores.softmax(2).unsqueeze(3) * self.values[slots]  # [batch, heads, k, d]
        logits: Tensor = self.unembed(stream + read.sum((1, 2)))
        return logits  # [batch, A]

    def _nearest(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """The scores and numbers of the k slots with the highest scores.

        A slot's score is the sum of those of its two half keys, so that the k best slots are among the pairs of the
        k best half keys of each side: n + n products and k^2 sums in place of n^2 products.
        """
        query = torch.einsum("bd,hed->bhe", stream, self.query).unflatten(2, (2, -1))  # [batch, heads, 2, d/2]
        halves = torch.einsum("bhsi,hsni->bhsn", query, self.keys)
        best = halves.topk(min(self.k, self.n), dim=3)  # [batch, heads, 2, at most k]
        (left, right), (left_at, right_at) = best.values.unbind(2), best.indices.unbind(2)
        sums = (left.unsqueeze(3) + right.unsqueeze(2)).flatten(2)  # [batch, heads, at most k^2]
        slots = (self.n * left_at.unsqueeze(3) + right_at.unsqueeze(2)).flatten(2)
        chosen = sums.topk(self.k, dim=2)
        return chosen.values, slots.gather(2, chosen.indices)
