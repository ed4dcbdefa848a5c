"""Heads that simulate neurons, against the neurons."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from membench.api import Shape
from membench_attention_mlp import AttentionMLPConfig
from membench_attention_mlp.model import AttentionMLP, MaskedHeads, load_mlp


def build(shape: Shape, **options: Any) -> AttentionMLP:
    torch.manual_seed(0)
    return AttentionMLP(shape, AttentionMLPConfig(**options))


def random_mlp(w: int, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return draw(w, d), draw(w), draw(d, w) / math.sqrt(w)


def apply_mlp(content: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, alpha: float) -> Tensor:
    z = content @ W_1.T + b_1
    return (z / (1 + torch.exp(-alpha * z))) @ W_2.T


@torch.no_grad()
def error(dtype: torch.dtype, length: int = 2, alpha: float = 1.0, **options: Any) -> float:
    """The largest difference between 200 simulated neurons and the MLP."""
    module = build(Shape(5, length, 5), d=10, w=200, alpha=alpha, **options).to(dtype)
    mlp = random_mlp(200, 10, dtype)
    load_mlp(module, *mlp)
    content = torch.randn(300, length, 10, generator=torch.Generator().manual_seed(4), dtype=dtype)
    simulated = module.neurons(content[:, length - module.neurons.reach :])
    return float((simulated - apply_mlp(content[:, -1], *mlp, alpha)).abs().max())


@pytest.mark.parametrize("alpha", [1.0, 1.702, 0.0])
@pytest.mark.parametrize("tied", [False, True])
def test_an_explicit_mask_simulates_the_mlp_exactly(tied: bool, alpha: float) -> None:
    assert error(torch.float64, tied=tied, alpha=alpha) < 1e-12
    assert error(torch.float32, tied=tied, alpha=alpha) < 2e-5


@pytest.mark.parametrize(("omega", "least", "most"), [(10.0, 1e-5, 1e-2), (20.0, 1e-10, 1e-6), (40.0, 0, 1e-12)])
def test_a_mask_in_the_weights_leaks_exponentially_little(omega: float, least: float, most: float) -> None:
    assert least <= error(torch.float64, mask="weights", omega=omega) < most
    assert least <= error(torch.float64, length=3, mask="weights", omega=omega) < most


def test_a_mask_in_the_weights_is_good_to_single_precision() -> None:
    assert error(torch.float32, mask="weights", omega=20.0) < 2e-5


def test_with_one_position_there_is_nothing_to_leak() -> None:
    assert error(torch.float64, length=1, mask="weights", omega=1.0) < 1e-12


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"mask": "weights", "omega": 40.0}])
@torch.no_grad()
def test_one_head_is_one_silu(options: dict[str, Any]) -> None:
    module = build(Shape(3, 2, 3), d=1, w=1, **options).double()
    load_mlp(module, *(torch.tensor(value, dtype=torch.float64) for value in ([[1.0]], [0.0], [[1.0]])))
    for z, silu in ((1.0, 0.7310585786), (-2.0, -0.2384058440)):
        content = torch.full((1, module.neurons.reach, 1), z, dtype=torch.float64)
        assert float(module.neurons(content)) == pytest.approx(silu, abs=1e-10)


def attention(tokens: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> Tensor:
    """One head's output at the last but one token, over all of them."""
    scores = (tokens @ key.T) @ (query @ tokens[-2])
    return output @ (scores.softmax(0) @ (tokens @ value.T))


@torch.no_grad()
def test_masked_heads_are_ordinary_heads_over_the_tokens_and_a_zero_token() -> None:
    """With arbitrary weights, so that nothing rests on what `load_mlp` sets."""
    neurons = build(Shape(5, 3, 5), d=4, w=6, mask="weights").double().neurons
    assert isinstance(neurons, MaskedHeads)
    generator = torch.Generator().manual_seed(5)
    for parameter in neurons.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3)
    content = torch.randn(7, 3, 4, generator=generator, dtype=torch.float64)
    weights = (neurons.query, neurons.key, neurons.value, neurons.output)
    for one, written in zip(content, neurons(content), strict=True):
        tokens = torch.cat([one, torch.ones(3, 1), torch.eye(3)], dim=1)
        tokens = torch.cat([tokens, torch.zeros(1, 8)])
        heads = torch.stack([attention(tokens, *(weight[h] for weight in weights)) for h in range(6)])
        torch.testing.assert_close(written, heads.sum(0)[:4], rtol=1e-11, atol=1e-12)


@torch.no_grad()
def test_explicit_heads_are_ordinary_heads_over_one_token_and_a_zero_token() -> None:
    neurons = build(Shape(5, 3, 5), d=4, w=6).double().neurons
    generator = torch.Generator().manual_seed(5)
    for parameter in neurons.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    content = torch.randn(7, 1, 4, generator=generator, dtype=torch.float64)
    query, key, value, output = neurons.parameters()
    for one, written in zip(content, neurons(content), strict=True):
        tokens = torch.cat([torch.cat([one, torch.ones(1, 1)], dim=1), torch.zeros(1, 5)])
        heads = (
            attention(tokens, query[h : h + 1], key[h : h + 1], value[h : h + 1], output[:, h : h + 1])
            for h in range(6)
        )
        torch.testing.assert_close(written, sum(heads), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"tied": True}, {"mask": "weights", "omega": 40.0}])
@torch.no_grad()
def test_the_model_is_one_head_then_the_mlp(options: dict[str, Any], length: int) -> None:
    shape = Shape(4, length, 4)
    module = build(shape, d=5, w=8, alpha=1.5, **options).double()
    mlp = random_mlp(8, 5, torch.float64)
    load_mlp(module, *mlp)
    tokens = torch.tensor(list(itertools.product(range(4), repeat=length)))
    x = module.word(tokens) + module.position.weight
    mixer = module.mixer
    scores = torch.einsum("bi,bsi->bs", x[:, -1] @ mixer.query.T, x @ mixer.key.T)
    u = x[:, -1] + torch.einsum("bs,bsi->bi", scores.softmax(1), x @ mixer.value.T) @ mixer.output.T
    expected = module.unembed(u + apply_mlp(u, *mlp, 1.5))
    torch.testing.assert_close(module(tokens), expected, rtol=1e-10, atol=1e-11)


@torch.no_grad()
def test_the_first_head_does_not_see_later_tokens() -> None:
    mixer = build(Shape(4, 3, 4), d=5).double().mixer
    stream = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    mixed = mixer(stream, queries=3)
    for seen in (1, 2, 3):
        alone = mixer(stream[:, :seen], queries=1)[:, 0]
        torch.testing.assert_close(mixed[:, seen - 1], alone, rtol=1e-11, atol=1e-12)


@torch.no_grad()
def test_initial_weights_are_a_random_mlp() -> None:
    tied = build(Shape(5, 2, 5), d=6, w=7, tied=True)
    for options in ({}, {"mask": "weights", "omega": 40.0}):
        module = build(Shape(5, 2, 5), d=6, w=7, **options)  # the same seed draws the same MLP
        tokens = torch.tensor([[0, 1], [4, 4], [3, 2]])
        torch.testing.assert_close(module(tokens), tied(tokens))
    W_1, b_1, W_2 = tied.neurons.parameters()
    for weight, bound in ((W_1, 6**-0.5), (b_1, 6**-0.5), (W_2, 7**-0.5)):
        assert 0.5 * bound < weight.abs().max() <= bound


@pytest.mark.parametrize(("options", "per_neuron"), [({"tied": True}, 21), ({}, 43), ({"mask": "weights"}, 156)])
def test_parameters_per_neuron(options: dict[str, Any], per_neuron: int) -> None:
    shape, d = Shape(50, 2, 50), 10  # 2d + 1, 4d + 3, and 4(1 + S)(d + 1 + S)
    module = build(shape, d=d, w=100, **options)
    rest = d * (2 * 50 + 2) + 4 * d * d
    assert sum(p.numel() for p in module.parameters()) == rest + 100 * per_neuron
    assert list(module.buffers()) == []


def test_a_mask_in_the_weights_has_parts_that_no_gradient_reaches() -> None:
    module = build(Shape(5, 2, 5), d=4, w=6, mask="weights", omega=2.0)
    tokens = torch.tensor([[0, 1], [4, 4], [3, 2]])
    module(tokens).square().sum().backward()
    value, output = (module.get_parameter(f"neurons.{name}").grad for name in ("value", "output"))
    assert value is not None
    assert output is not None
    assert (value[:, 0] != 0).all()
    assert (value[:, 1:] == 0).all()
    assert (output[:, :4, 0] != 0).all()
    assert (output[:, :, 1:] == 0).all()
    assert (output[:, 4:] == 0).all()


def test_without_neurons_the_first_layer_is_left() -> None:
    for options in ({}, {"tied": True}, {"mask": "weights"}):
        assert build(Shape(4, 2, 4), w=0, **options)(torch.tensor([[0, 1]])).isfinite().all()


def test_a_mask_in_the_weights_cannot_be_tied() -> None:
    with pytest.raises(ValueError, match="tied=true needs mask=explicit, not mask=weights"):
        AttentionMLPConfig(mask="weights", tied=True)
