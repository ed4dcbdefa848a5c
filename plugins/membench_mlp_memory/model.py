"""The MLP associative memory as a module."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize, relu, silu

from membench.api import Shape
from membench_mlp_memory import MLPMemoryConfig


class MLPMemory(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: U V relu(W x), with frozen x for a context and U for answers.

    With several experts the neurons are in as many parts, and what a part says is multiplied by its share of a softmax
    over scores G x: a soft mixture.

    Entries of x are of order 1 and rows of U have length sqrt(d), so that weights, logits and what Adam adds to a
    weight in a step are of the orders that other models have them in. The vector of a context is the cosine of a sum of
    random phases, one for each of its tokens and positions, as in linear-memory: no table of N^S vectors is made.
    """

    phases: Tensor
    outputs: Tensor

    def __init__(self, shape: Shape, config: MLPMemoryConfig) -> None:
        super().__init__()
        N, S, A = shape
        d, m = config.d, config.m
        self.config = config
        self.register_buffer("phases", 2 * math.pi * torch.rand(S, N, d))
        self.register_buffer("outputs", math.sqrt(d) * normalize(torch.randn(A, d), dim=1))
        self.first = nn.Parameter(torch.randn(m, d) / math.sqrt(d))
        self.gate = nn.Parameter(torch.randn(config.experts, d) / math.sqrt(d)) if config.experts > 1 else None
        self.second = nn.Parameter(torch.randn(d, m) / math.sqrt(m * d))

    def forward(self, tokens: Tensor) -> Tensor:
        contexts = self.contexts(tokens)
        inputs = contexts @ self.first.T  # [batch, m]
        neurons = relu(inputs) if self.config.activation == "relu" else silu(inputs)
        if self.gate is not None:
            shares = (contexts @ self.gate.T).softmax(1)  # [batch, experts]
            neurons = (neurons.unflatten(1, (len(self.gate), -1)) * shares[:, :, None]).flatten(1)
        return neurons @ self.second.T @ self.outputs.T  # [batch, A]

    def contexts(self, tokens: Tensor) -> Tensor:
        """The vectors of contexts, [batch, d], of length sqrt(d)."""
        S, N, d = self.phases.shape
        places = tokens + N * torch.arange(S, device=tokens.device)
        added = embedding(places, self.phases.flatten(0, 1)).sum(1)
        return math.sqrt(d) * normalize(added.cos(), dim=1)
