"""The linear associative memory: one trained matrix between frozen random vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class LinearMemoryConfig:
    """The size of the matrix, which is all that is trained."""

    d: int = option(32, help="d, dimension of the frozen input and output vectors", minimum=1)


def _for_budget(shape: Shape, parameters: int) -> LinearMemoryConfig:
    if parameters < 1:
        raise BudgetTooSmall(1)
    return LinearMemoryConfig(d=math.isqrt(parameters))


ARCHITECTURE = Architecture(
    name="linear-memory",
    summary="linear associative memory: a trained d x d matrix between frozen random vectors",
    reference=(
        "Cabannes, Dohmatob, Bietti, 'Scaling Laws for Associative Memories', 2023, arXiv:2310.02984; "
        "Kohonen, 'Correlation Matrix Memories', IEEE Transactions on Computers C-21, 1972"
    ),
    config=LinearMemoryConfig,
    build=lazy("membench_linear_memory.model:LinearMemory"),
    bottleneck=lambda config: config.d,
    kernel=lazy("membench_linear_memory.kernel:make_trainer"),
    constructions={
        "hebb": lazy("membench_linear_memory.construct:hebb"),
        "pseudo-inverse": lazy("membench_linear_memory.construct:pseudo_inverse"),
    },
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[LinearMemoryConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_linear_memory.bounds import bounds

    return bounds()
