"""Rounding weights once a training is over: to which numbers, which of them, and what they take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from membench.measure.quantize import BITS, quantizations_of, quantized, stored_bits
from membench.measure.size import describe_fresh


class Model(nn.Module):
    """Two tensors of different size, a shared one, a frozen buffer and one that training changes."""

    frozen: torch.Tensor
    learned: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.linspace(-0.01, 0.01, 101))
        self.large = nn.Parameter(torch.linspace(-50.0, 30.0, 161))
        self.again = self.large
        self.register_buffer("frozen", torch.full((7,), 0.123456))
        self.register_buffer("learned", torch.zeros(5))


def trained() -> tuple[dict[str, torch.Tensor], Model]:
    model = Model()
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    state["learned"] = torch.tensor([1.0, -2.0, 3.0, 0.1, 0.0])
    return state, model


@pytest.mark.parametrize(("name", "most"), [("int8", 127), ("int4", 7)])
def test_each_tensor_has_a_scale_of_its_own_and_no_more_levels_than_its_bits_tell_apart(name: str, most: int) -> None:
    state, model = trained()
    rounded = quantized(state, describe_fresh(model), name)
    for key in ("small", "large", "learned"):
        scale = float(state[key].abs().max()) / most
        assert float((rounded[key] - state[key]).abs().max()) <= scale / 2 * (1 + 1e-5)
        levels = torch.unique(rounded[key])
        assert len(levels) <= 2 * most + 1
        assert torch.allclose(levels / scale, (levels / scale).round(), atol=1e-3)


def test_what_was_drawn_and_not_learned_is_left_alone_and_shared_tensors_stay_equal() -> None:
    state, model = trained()
    rounded = quantized(state, describe_fresh(model), "int4")
    assert torch.equal(rounded["frozen"], state["frozen"])
    assert not torch.equal(rounded["learned"], state["learned"])
    assert torch.equal(rounded["large"], rounded["again"])


def test_stored_are_the_numbers_and_a_scale_for_each_tensor() -> None:
    state, model = trained()
    numbers = 101 + 161 + 5  # the shared one once
    for name, bits in BITS.items():
        scales = 0 if name == "bfloat16" else 3 * 32
        assert stored_bits(state, describe_fresh(model), name) == numbers * bits + scales


def test_bfloat16_keeps_eight_bits_of_each_number() -> None:
    state, model = trained()
    rounded = quantized(state, describe_fresh(model), "bfloat16")["large"]
    assert torch.equal(rounded, state["large"].bfloat16().float())
    assert rounded.dtype == torch.float32


def test_complex_numbers_are_rounded_in_both_parts_and_zeros_stay() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.Parameter(torch.complex(torch.linspace(0, 7, 8), torch.linspace(-7, 0, 8) + 0.3))
            self.nothing = nn.Parameter(torch.zeros(3))

    model = Complex()
    state = dict(model.state_dict())
    rounded = quantized(state, describe_fresh(model), "int4")
    assert torch.allclose(torch.view_as_real(rounded["turn"]), torch.view_as_real(state["turn"]).round())
    assert not rounded["nothing"].any()
    assert stored_bits(state, describe_fresh(model), "int4") == 2 * 8 * 4 + 3 * 4 + 2 * 32


def test_a_record_says_by_its_metrics_what_its_weights_were_rounded_to() -> None:
    assert quantizations_of(["accuracy", "accuracy@int8", "learned_bits@int8", "recall@5"]) == ["int8"]
    assert quantizations_of(["accuracy", "recall@2"]) == []
