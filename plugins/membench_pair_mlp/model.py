"""The pair MLP as a module."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from membench.api import Shape
from membench_pair_mlp import PairMLPConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu, "none": lambda inputs: inputs}


class PairMLP(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: U relu(E_1[t_1] + .. + E_S[t_S])."""

    def __init__(self, shape: Shape, config: PairMLPConfig) -> None:
        super().__init__()
        self.config, self.vocab = config, shape.vocab
        self.tables = _tables(shape, config.w)
        self.gates = _tables(shape, config.w) if config.gate else None
        self.bias = nn.Parameter(torch.zeros(config.w)) if config.bias else None
        self.unembed = nn.Linear(config.w, shape.answers, bias=config.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        inputs = self._mixed(self.tables, tokens)  # [batch, w]
        if self.bias is not None:
            inputs = inputs + self.bias
        read = ACTIVATIONS[self.config.activation](inputs)
        if self.gates is not None:
            read = read * self._mixed(self.gates, tokens)
        if self.config.residual:
            read = read + inputs
        if self.config.norm:
            read = read * torch.rsqrt(read.square().mean(1, keepdim=True) + 1e-6)
        logits: Tensor = self.unembed(read)
        return logits  # [batch, A]

    def _mixed(self, tables: nn.ModuleList, tokens: Tensor) -> Tensor:
        """What the tokens of a context make together, [batch, w]."""
        mixed: Tensor = tables[0](tokens[:, 0])
        for position, table in enumerate(tables[1:], 1):
            row = table(tokens[:, position])
            mixed = mixed + row if self.config.mixing == "add" else mixed * row
        return mixed


def _tables(shape: Shape, w: int) -> nn.ModuleList:
    """One embedding for each position; their sum has entries of order 1."""
    tables = [nn.Embedding(shape.vocab, w) for _ in range(shape.length)]
    for table in tables:
        nn.init.normal_(table.weight, std=1 / math.sqrt(shape.length))
    return nn.ModuleList(tables)
