"""The MLP transformer against its formula."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from membench.api import Shape
from membench_mlp_transformer import MLPTransformerConfig
from membench_mlp_transformer.model import MLPTransformer


def build(shape: Shape, **options: Any) -> MLPTransformer:
    torch.manual_seed(0)
    return MLPTransformer(shape, MLPTransformerConfig(**options)).double()


def gelu(z: float) -> float:
    return z * (1 + math.erf(z / math.sqrt(2))) / 2


def literal(module: MLPTransformer, config: MLPTransformerConfig, context: list[int]) -> Tensor:
    """Logits of one context: attention by a loop over positions, the MLP by a loop over neurons."""
    stream = [module.word.weight[t] for t in context]
    if config.skip_position:
        stream = [word + module.position.weight[s] for s, word in enumerate(stream)]
    for layer in module.layers:
        unseen = [torch.zeros(config.d)] * len(stream) if config.skip_position else list(module.position.weight)
        read = [x + p for x, p in zip(stream, unseen, strict=True)]
        stream = [_after(layer, config, stream[s], read[: s + 1]) for s in range(len(stream))]
    return module.unembed.weight @ stream[-1]


def _after(layer: Any, config: MLPTransformerConfig, before: Tensor, read: list[Tensor]) -> Tensor:
    """The stream at the last position of `read` after a layer."""
    scale = 1 / math.sqrt(config.d) if config.scale else 1.0
    query = layer.query @ read[-1]
    scores = [math.exp(float(query @ (layer.key @ x)) * scale) for x in read]
    mixed = torch.stack([s / sum(scores) * (layer.value @ x) for s, x in zip(scores, read, strict=True)]).sum(0)
    u = before + layer.output @ mixed
    r = u.clone()
    for neuron in range(config.w):
        z = layer.hidden.weight[neuron] @ u
        if layer.hidden.bias is not None:
            z = z + layer.hidden.bias[neuron]
        r = r + layer.project.weight[:, neuron] * gelu(float(z))
    return r


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"scale": False},
        {"skip_position": False},
        {"w": 0},
        {"w": 0, "bias": False},
        {"layers": 3},
        {"layers": 2, "skip_position": False},
    ],
)
@torch.no_grad()
def test_forward_is_the_formula(options: dict[str, Any], length: int) -> None:
    shape = Shape(3, length, 3)
    options = {"d": 4, "w": 5, **options}
    module = build(shape, **options)
    tokens = torch.tensor(list(itertools.product(range(3), repeat=length)))
    config = MLPTransformerConfig(**options)
    expected = torch.stack([literal(module, config, context) for context in tokens.tolist()])
    torch.testing.assert_close(module(tokens), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("N", "S", "d", "w", "bias", "parameters"),
    [
        (70, 2, 10, 0, True, 1820),
        (70, 2, 10, 200, True, 6020),
        (70, 2, 10, 200, False, 5820),
        (70, 2, 13, 780, True, 23582),
        (50, 2, 10, 100, True, 3520),
    ],
)
def test_parameters_are_those_of_the_paper(N: int, S: int, d: int, w: int, bias: bool, parameters: int) -> None:
    module = build(Shape(N, S, N), d=d, w=w, bias=bias)
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert list(module.buffers()) == []


def test_parameters_have_their_fixed_names_and_shapes() -> None:
    module = build(Shape(7, 3, 7), d=5, w=4)
    square = dict.fromkeys((f"layers.0.{name}" for name in ("query", "key", "value", "output")), (5, 5))
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == square | {
        "word.weight": (7, 5),
        "position.weight": (3, 5),
        "layers.0.hidden.weight": (4, 5),
        "layers.0.hidden.bias": (4,),
        "layers.0.project.weight": (5, 4),
        "unembed.weight": (7, 5),
    }
