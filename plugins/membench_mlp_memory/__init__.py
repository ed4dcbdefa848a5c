"""The MLP associative memory: neurons between frozen random vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class MLPMemoryConfig:
    """The matrices, which are all that is trained."""

    d: int = option(16, help="d, dimension of the frozen input and output vectors", minimum=1)
    m: int = option(None, help="m, neurons (auto: 4 d)", minimum=1)
    activation: str = option("relu", help="what a neuron makes of its input", choices=("relu", "silu"))
    experts: int = option(1, help="parts of the neurons, mixed by a softmax of their own scores", minimum=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", 4 * self.d if self.m is None else self.m)
        if self.m % self.experts:
            raise ValueError(f"experts={self.experts} does not divide the m={self.m} neurons")


def _for_budget(shape: Shape, parameters: int) -> MLPMemoryConfig:
    if parameters < 2:
        raise BudgetTooSmall(2)
    d = max(1, math.isqrt(parameters // 8))  # 2 d m parameters with m = 4 d
    return MLPMemoryConfig(d=d, m=parameters // (2 * d))


ARCHITECTURE = Architecture(
    name="mlp-memory",
    summary="MLP associative memory: trained ReLU neurons between frozen random vectors",
    reference=(
        "Nichani, Lee, Bietti, 'Understanding Factual Recall in Transformers via Associative Memories', 2024, "
        "arXiv:2412.06538"
    ),
    config=MLPMemoryConfig,
    build=lazy("membench_mlp_memory.model:MLPMemory"),
    bottleneck=lambda config: config.d,
    kernel=lazy("membench_mlp_memory.kernel:make_trainer"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[MLPMemoryConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_mlp_memory.bounds import bounds

    return bounds()
