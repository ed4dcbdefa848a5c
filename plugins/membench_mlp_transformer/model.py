"""The MLP transformer as a module."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from membench.api import Shape
from membench_mlp_transformer import MLPTransformerConfig


class MLPTransformer(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A], read off the last position of the residual stream."""

    def __init__(self, shape: Shape, config: MLPTransformerConfig) -> None:
        super().__init__()
        self.skip_position = config.skip_position
        self.word = nn.Embedding(shape.vocab, config.d)
        self.position = nn.Embedding(shape.length, config.d)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.unembed = nn.Linear(config.d, shape.answers, bias=False)
        for table in (self.word, self.position, self.unembed):
            _uniform(table.weight, 1 / math.sqrt(config.d))

    def forward(self, tokens: Tensor) -> Tensor:
        position = self.position.weight
        stream = self.word(tokens)  # [batch, S, d]
        if self.skip_position:
            stream, position = stream + position, torch.zeros_like(position)
        for layer in self.layers[:-1]:
            stream = layer(stream, stream + position)
        stream = cast("Layer", self.layers[-1]).at_last(stream, stream + position)  # [batch, d]
        logits: Tensor = self.unembed(stream)
        return logits  # [batch, A]


class Layer(nn.Module):
    """One head, then w neurons; both read the residual stream and write to it."""

    def __init__(self, config: MLPTransformerConfig) -> None:
        super().__init__()
        d, w = config.d, config.w
        self.factor = 1 / math.sqrt(d) if config.scale else 1.0
        self.query = nn.Parameter(torch.empty(d, d))
        self.key = nn.Parameter(torch.empty(d, d))
        self.value = nn.Parameter(torch.empty(d, d))
        self.output = nn.Parameter(torch.empty(d, d))
        self.hidden = Linear(d, w, bias=config.bias)
        self.project = Linear(w, d, bias=False)
        self._initialise(d, w)

    def _initialise(self, d: int, w: int) -> None:
        """As torch's MultiheadAttention and Linear; without `scale` the initial query carries it."""
        xavier = math.sqrt(6 / (4 * d))
        _uniform(self.query, xavier / (math.sqrt(d) * self.factor))
        _uniform(self.key, xavier)
        _uniform(self.value, xavier)
        for weight in (self.output, *self.hidden.parameters()):
            _uniform(weight, 1 / math.sqrt(d))
        _uniform(self.project.weight, 1 / math.sqrt(max(w, 1)))

    def forward(self, stream: Tensor, read: Tensor) -> Tensor:
        """The stream after this layer, at every position, [batch, S, d]; none sees what comes after it."""
        S = read.shape[1]
        future = torch.ones(S, S, dtype=torch.bool, device=read.device).triu(1)
        scores = (read @ self._pair()) @ read.mT  # [batch, S, S]
        weights = scores.masked_fill(future, -math.inf).softmax(2)
        return self._think(stream + (weights @ read) @ self._written())

    def at_last(self, stream: Tensor, read: Tensor) -> Tensor:
        """The same at the last position alone, [batch, d]."""
        wanted = read[:, -1] @ self._pair()  # [batch, d]
        weights = (read @ wanted[:, :, None]).softmax(1)  # [batch, S, 1]
        return self._think(stream[:, -1] + (weights * read).sum(1) @ self._written())

    def _think(self, stream: Tensor) -> Tensor:
        update: Tensor = self.project(gelu(self.hidden(stream)))
        return stream + update

    # Query meets key, and value output, before any token: then nothing is made per token but what is needed.
    def _pair(self) -> Tensor:
        return self.query.T @ self.key * self.factor

    def _written(self) -> Tensor:
        return (self.output @ self.value).T


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
