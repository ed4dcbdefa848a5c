"""The MLP transformer as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from membench.api import Shape
from membench_mlp_transformer import MLPTransformerConfig


class MLPTransformer(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, N], read off the last position of the residual stream."""

    def __init__(self, shape: Shape, config: MLPTransformerConfig) -> None:
        super().__init__()
        d, w = config.d, config.w
        self.skip_position = config.skip_position
        self.factor = 1 / math.sqrt(d) if config.scale else 1.0
        self.word = nn.Embedding(shape.vocab, d)
        self.position = nn.Embedding(shape.length, d)
        self.query = nn.Parameter(torch.empty(d, d))
        self.key = nn.Parameter(torch.empty(d, d))
        self.value = nn.Parameter(torch.empty(d, d))
        self.output = nn.Parameter(torch.empty(d, d))
        self.hidden = Linear(d, w, bias=config.bias)
        self.project = Linear(w, d, bias=False)
        self.unembed = nn.Linear(d, shape.vocab, bias=False)
        self._initialise(d, w)

    def _initialise(self, d: int, w: int) -> None:
        """As torch's MultiheadAttention and Linear; without `scale` the initial query carries it."""
        xavier = math.sqrt(6 / (4 * d))
        _uniform(self.query, xavier / (math.sqrt(d) * self.factor))
        _uniform(self.key, xavier)
        _uniform(self.value, xavier)
        usual = (self.word.weight, self.position.weight, self.output, self.unembed.weight, *self.hidden.parameters())
        for weight in usual:
            _uniform(weight, 1 / math.sqrt(d))
        _uniform(self.project.weight, 1 / math.sqrt(max(w, 1)))

    def forward(self, tokens: Tensor) -> Tensor:
        words = self.word(tokens)  # [batch, S, d]
        read = words + self.position.weight
        stream = (read if self.skip_position else words)[:, -1] + self._attend(read)  # [batch, d]
        stream = stream + self.project(gelu(self.hidden(stream)))
        logits: Tensor = self.unembed(stream)
        return logits  # [batch, N]

    def _attend(self, read: Tensor) -> Tensor:
        """The head's output at the last position, [batch, d]; query meets key, and value output, before any token."""
        wanted = read[:, -1] @ (self.query.T @ self.key * self.factor)  # [batch, d]
        weights = (read @ wanted[:, :, None]).softmax(1)  # [batch, S, 1]
        return (weights * read).sum(1) @ (self.output @ self.value).T


class Linear(nn.Module):
    """torch's Linear, but without an initialisation, which would warn that there is nothing to initialise when w=0."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, vectors: Tensor) -> Tensor:
        return linear(vectors, self.weight, self.bias)


def _uniform(weight: Tensor, bound: float) -> None:
    nn.init.uniform_(weight, -bound, bound)
