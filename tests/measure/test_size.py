from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from membench.interface.facts import Shape
from membench.measure.size import (
    Size,
    count_without_gradient,
    describe_fresh,
    float_bits,
    float_type,
    measure_size,
    widths_of,
)


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
    # the buffer that is left out of the state dict is counted, but not stored
    assert measure_size(Model(), Shape(7, 2, 7)) == Size(
        21 + 21 + 5 + 4, 51, 8, storage_bits=32 * 57, learned_bits=32 * 51
    )


def test_declared_embeddings_are_left_out_if_they_are_tables_over_tokens() -> None:
    assert measure_size(Model(), Shape(7, 2, 7), ("word", "out")).without_embeddings == 9
    assert measure_size(Model(), Shape(7, 2, 7), ("word.", "out.")).without_embeddings == 9
    # a parameter that is no such table stays counted, whatever the plugin declares
    assert measure_size(Model(), Shape(7, 2, 7), ("unused", "wor")).without_embeddings == 51
    assert measure_size(Model(), Shape(9, 2, 9), ("word",)).without_embeddings == 51


def test_a_table_over_the_answers_is_an_embedding_too() -> None:
    model = nn.ModuleDict({"word": nn.Embedding(7, 3), "out": nn.Linear(3, 5, bias=False)})
    assert measure_size(model, Shape(7, 2, 5), ("word", "out")).without_embeddings == 0
    assert measure_size(model, Shape(7, 2, 7), ("word", "out")).without_embeddings == 15


@pytest.mark.parametrize(
    ("dtype", "name", "bits"),
    [(torch.float32, "float32", 32), (torch.float64, "float64", 64), (torch.bfloat16, "bfloat16", 16)],
)
def test_the_type_of_weights_and_its_bits(dtype: torch.dtype, name: str, bits: int) -> None:
    state = {"steps": torch.zeros(1, dtype=torch.int64), **Model().to(dtype).state_dict()}
    assert (float_type(state), float_bits(state)) == (name, bits)


def test_parameters_that_the_loss_does_not_reach_are_counted() -> None:
    assert count_without_gradient(Model(), torch.zeros(2, 2, dtype=torch.int64)) == 9


def test_a_buffer_that_changed_since_it_was_built_counts_as_parameters() -> None:
    model = Model()
    fresh = describe_fresh(model)
    assert measure_size(model, Shape(7, 2, 7), (), fresh).parameters == 51
    model.table[3] = 1e-7
    changed = measure_size(model, Shape(7, 2, 7), ("word",), fresh)
    assert (changed.parameters, changed.without_embeddings, changed.learned_buffers) == (57, 36, 6)


def test_a_buffer_is_as_it_was_built_bit_for_bit() -> None:
    model = Model()
    fresh = describe_fresh(model)
    model.table.neg_()  # -0 equals 0
    assert measure_size(model, Shape(7, 2, 7), (), fresh).learned_buffers == 6


def test_numbers_that_are_not_floating_point_count_by_their_bits() -> None:
    class Whole(Model):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
            self.register_buffer("flags", torch.zeros(5, dtype=torch.bool))
            self.waves = nn.Parameter(torch.zeros(2, dtype=torch.complex64))

    model = Whole()
    fresh = describe_fresh(model)
    assert measure_size(model, Shape(7, 2, 7), (), fresh).parameters == 51 + 2 * 3 + 2 * 2
    model.flags[0] = True
    changed = measure_size(model, Shape(7, 2, 7), (), fresh)
    assert changed.learned_buffers == 2  # 40 bits
    assert changed.learned_bits == 32 * 51 + 64 * 3 + 64 * 2 + 40


def test_a_module_cannot_hide_its_parameters() -> None:
    class Hiding(Model):
        def named_parameters(self, *given: Any, **more: Any) -> Iterator[tuple[str, nn.Parameter]]:
            return iter(())

        def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
            return iter(())

        def state_dict(self, *given: Any, **more: Any) -> dict[str, Any]:
            return {}

    assert measure_size(Hiding(), Shape(7, 2, 7)) == measure_size(Model(), Shape(7, 2, 7))


def test_an_embedding_has_a_width_that_the_config_names() -> None:
    named = measure_size(Model(), Shape(7, 2, 7), ("word", "out"), widths=widths_of({"d": 3, "scale": True}))
    assert named.without_embeddings == 9
    assert measure_size(Model(), Shape(7, 2, 7), ("word", "out"), widths={4}).without_embeddings == 51


def test_batch_norm_does_not_learn_from_being_measured() -> None:
    class Normalised(Model):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.out(self.norm(self.word(tokens[:, -1])))
            return logits

    model = Normalised()
    fresh = describe_fresh(model)
    count_without_gradient(model, torch.zeros(2, 2, dtype=torch.int64))
    assert model.training
    assert measure_size(model, Shape(7, 2, 7), (), fresh).learned_buffers == 0


def test_a_state_that_is_no_tensor_cannot_be_counted() -> None:
    class Extra(Model):
        def get_extra_state(self) -> dict[str, int]:
            return {"answers": 42}

    with pytest.raises(TypeError, match="'_extra_state' of the state dict is a dict"):
        measure_size(Extra(), Shape(7, 2, 7))
