"""Mixture of experts: a router sends each context to the k experts that it scores highest."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """Experts of w neurons each, of which a context uses k."""

    d: int = option(16, help="d, dimension of the residual stream", minimum=1)
    experts: int = option(8, help="experts, each with neurons of its own", minimum=1)
    k: int = option(None, help="k, experts that a context is sent to; auto is 2, or the only one there is", minimum=1)
    w: int = option(16, help="w, neurons of an expert", minimum=1)

    def __post_init__(self) -> None:
        if self.k is None:
            object.__setattr__(self, "k", min(2, self.experts))
        if self.k > self.experts:
            raise ValueError(f"k={self.k} must be at most experts={self.experts}")


def count(shape: Shape, config: MoEConfig) -> int:
    """Parameters: tables for each position, the router, the experts with biases, and the unembedding."""
    d, w = config.d, config.w
    return d * (shape.length * shape.vocab + shape.answers) + config.experts * (d + 2 * d * w + w)


def _active(shape: Shape, config: MoEConfig) -> int:
    """Those of a sparse mixture: one row of each table, the router, k experts, and the unembedding."""
    d, w = config.d, config.w
    return d * (shape.length + shape.answers) + config.experts * d + config.k * (2 * d * w + w)


def _for_budget(shape: Shape, parameters: int) -> MoEConfig:
    """Four experts, and about 60 % of the parameters in the tables; smaller experts before fewer."""
    least = count(shape, MoEConfig(d=1, experts=1, w=1))
    if parameters < least:
        raise BudgetTooSmall(least)
    tables = shape.length * shape.vocab + shape.answers
    d = max(1, 3 * parameters // (5 * tables))
    for experts in (4, 2, 1):
        while d > 1 and count(shape, MoEConfig(d=d, experts=experts, w=1)) > parameters:
            d -= 1
        left = parameters - count(shape, MoEConfig(d=d, experts=experts, w=1))
        if left >= 0:
            return MoEConfig(d=d, experts=experts, w=1 + left // (experts * (2 * d + 1)))
    raise AssertionError("the smallest model fits")


ARCHITECTURE = Architecture(
    name="moe",
    summary="a mixture of experts with top-k routing: ReLU networks that see only the contexts sent to them",
    reference=(
        "Shazeer et al., 'Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer', 2017, "
        "arXiv:1701.06538; weights from a softmax over the chosen experts as in Jiang et al., 'Mixtral of Experts', "
        "2024, arXiv:2401.04088"
    ),
    config=MoEConfig,
    build=lazy("membench_moe.model:MoE"),
    bottleneck=lambda config: config.d,
    active=_active,  # the module computes every expert
    embeddings=("tables", "unembed"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[MoEConfig]]:
    return [ARCHITECTURE]
