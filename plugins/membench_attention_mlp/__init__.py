"""The attention-simulated MLP: a hidden layer of neurons in which each neuron is an attention head."""

from __future__ import annotations

import math
from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class AttentionMLPConfig:
    """One head that mixes tokens, then w heads that each act as a neuron, z -> z sigmoid(alpha z)."""

    d: int = option(10, help="d, dimension of the content of the residual stream, and of the first head", minimum=1)
    w: int = option(100, help="w, heads of the second layer, one for each neuron", minimum=0)
    mask: str = option(
        "explicit",
        help="how a neuron's head is kept to its own token: by a mask, or by large weights",
        choices=("explicit", "weights"),
    )
    alpha: float = option(1.0, help="slope of the sigmoid: 1 is SiLU, 1.702 is close to GELU", minimum=0)
    omega: float = option(20.0, help="initial strength of a mask in the weights", minimum=0)
    tied: bool = option(False, help="train the simulated MLP's weights alone; needs mask=explicit")

    def __post_init__(self) -> None:
        if self.tied and self.mask != "explicit":
            raise ValueError(f"tied=true needs mask=explicit, not mask={self.mask}, whose heads have their own weights")


def count(shape: Shape, d: int, w: int) -> int:
    """Parameters with an explicit mask and untied heads."""
    return d * (shape.vocab + shape.length + shape.answers) + 4 * d * d + (4 * d + 3) * w


def _for_budget(shape: Shape, parameters: int) -> AttentionMLPConfig:
    """The model with untied heads that should memorise most.

    Untied, because at N=50 with 4000 parameters such heads memorised more than the tied ones that fit,
    though these are twice as many. For d, what a parameter of a neuron memorises is taken to grow as d,
    as it does in an MLP, while a larger d leaves fewer of them: the product is made largest.
    """
    smallest = count(shape, 1, 1)
    if parameters < smallest:
        raise BudgetTooSmall(smallest)
    widest = {d: (parameters - count(shape, d, 0)) // (4 * d + 3) for d in range(1, math.isqrt(parameters) + 1)}
    d = max((d for d, w in widest.items() if w >= 1), key=lambda d: d * (4 * d + 3) * widest[d])
    return AttentionMLPConfig(d=d, w=widest[d])


ARCHITECTURE = Architecture(
    name="attention-mlp",
    summary="attention heads that simulate the neurons of an MLP, after one head that mixes tokens",
    reference=(
        "Huben, Morris, 'Attention-Only Transformers and Implementing MLPs with Attention Heads', 2023, "
        "arXiv:2309.08593"
    ),
    config=AttentionMLPConfig,
    build=lazy("membench_attention_mlp.model:AttentionMLP"),
    bottleneck=lambda config: config.d,
    embeddings=("word", "position", "unembed"),
    kernel=lazy("membench_attention_mlp.kernel:make_trainer"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[AttentionMLPConfig]]:
    return [ARCHITECTURE]
