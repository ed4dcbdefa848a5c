from __future__ import annotations

import torch
from torch import nn

from membench.facts import Shape
from membench.size import Size, count_without_gradient, measure_size


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(7, 3)
        self.out = nn.Linear(3, 7, bias=False)
        self.tied = self.out.weight  # the same tensor twice counts once
        self.unused = nn.Parameter(torch.zeros(5))
        self.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("table", torch.zeros(6))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(self.word(tokens[:, -1]))
        return logits


def test_everything_is_counted_once() -> None:
    assert measure_size(Model(), Shape(7, 2)) == Size(21 + 21 + 5 + 4, 51, 8)


def test_declared_embeddings_are_left_out_if_they_are_tables_over_tokens() -> None:
    assert measure_size(Model(), Shape(7, 2), ("word", "out")).without_embeddings == 9
    # a parameter that is no such table stays counted, whatever the plugin declares
    assert measure_size(Model(), Shape(7, 2), ("unused", "wor")).without_embeddings == 51
    assert measure_size(Model(), Shape(9, 2), ("word",)).without_embeddings == 51


def test_parameters_that_the_loss_does_not_reach_are_counted() -> None:
    assert count_without_gradient(Model(), torch.zeros(2, 2, dtype=torch.int64)) == 9
