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
    words = [module.word.weight[t] for t in context]
    read = [word + module.position.weight[s] for s, word in enumerate(words)]
    scale = 1 / math.sqrt(config.d) if config.scale else 1.0
    query = module.query @ read[-1]
    scores = [math.exp(float(query @ (module.key @ x)) * scale) for x in read]
    mixed = torch.stack([score / sum(scores) * (module.value @ x) for score, x in zip(scores, read, strict=True)]).sum(
        0
    )
    u = (read if config.skip_position else words)[-1] + module.output @ mixed
    r = u.clone()
    for neuron in range(config.w):
        z = module.hidden.weight[neuron] @ u
        if module.hidden.bias is not None:
            z = z + module.hidden.bias[neuron]
        r = r + module.project.weight[:, neuron] * gelu(float(z))
    return module.unembed.weight @ r


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"scale": True}, {"skip_position": False}, {"w": 0}, {"w": 0, "bias": False, "scale": True}],
)
@torch.no_grad()
def test_forward_is_the_formula(options: dict[str, Any], length: int) -> None:
    shape = Shape(3, length)
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
    module = build(Shape(N, S), d=d, w=w, bias=bias)
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert list(module.buffers()) == []


def test_parameters_have_their_fixed_names_and_shapes() -> None:
    module = build(Shape(7, 3), d=5, w=4)
    square = dict.fromkeys(("query", "key", "value", "output"), (5, 5))
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == square | {
        "word.weight": (7, 5),
        "position.weight": (3, 5),
        "hidden.weight": (4, 5),
        "hidden.bias": (4,),
        "project.weight": (5, 4),
        "unembed.weight": (7, 5),
    }
