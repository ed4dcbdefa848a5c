"""The MLP transformer: layers of one attention head and one hidden layer of neurons."""

from __future__ import annotations

import math
from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class MLPTransformerConfig:
    """Layers of one head of dimension d and w neurons."""

    d: int = option(10, help="d, dimension of the residual stream and of the head", minimum=1)
    w: int = option(200, help="w, neurons in the hidden layer of each layer", minimum=0)
    layers: int = option(1, help="layers, each a head and neurons", minimum=1)
    bias: bool = option(True, help="neurons have a bias")
    scale: bool = option(True, help="divide attention scores by sqrt(d)")
    skip_position: bool = option(True, help="residual stream contains the position")


def count(shape: Shape, d: int, w: int) -> int:
    """Parameters with biases and one layer."""
    return d * (shape.vocab + shape.length + shape.answers) + 4 * d * d + (2 * d + 1) * w


def _for_budget(shape: Shape, parameters: int) -> MLPTransformerConfig:
    """The model with biases and one layer that should memorise most.

    What a parameter of a neuron memorises was seen to grow about as d, at N=50 with 2000 and 4000
    parameters and at N=70 with 8000, while a larger d leaves fewer of them: the product is made largest.
    """
    smallest = count(shape, 1, 1)
    if parameters < smallest:
        raise BudgetTooSmall(smallest)
    widest = {d: (parameters - count(shape, d, 0)) // (2 * d + 1) for d in range(1, math.isqrt(parameters) + 1)}
    d = max((d for d, w in widest.items() if w >= 1), key=lambda d: d * (2 * d + 1) * widest[d])
    return MLPTransformerConfig(d=d, w=widest[d])


ARCHITECTURE = Architecture(
    name="mlp-transformer",
    summary="layers of one attention head and one hidden layer of GELU neurons, on a residual stream",
    reference=(
        "Dana, Pydi, Chevaleyre, 'Memorization in Attention-only Transformers', 2024, arXiv:2411.10115, "
        "the model that attention is compared with"
    ),
    config=MLPTransformerConfig,
    build=lazy("membench_mlp_transformer.model:MLPTransformer"),
    bottleneck=lambda config: config.d,
    embeddings=("word", "position", "unembed"),
    state=lambda shape, config: 2 * config.layers * config.d * (shape.length - 1),  # keys and values
    kernel=lazy("membench_mlp_transformer.kernel:make_trainer"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[MLPTransformerConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_mlp_transformer.bounds import bounds

    return bounds()
