"""The modern Hopfield layer: learned patterns that a context's state is drawn to, and a value for each of them."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class HopfieldConfig:
    """M stored patterns of dimension d, and as many values."""

    d: int = option(16, help="d, dimension of states, patterns and values", minimum=1)
    M: int = option(64, help="M, stored patterns", minimum=1)
    beta: float = option(1.0, help="inverse temperature of the retrieval: higher is nearer to the nearest", minimum=0)
    updates: int = option(1, help="retrievals; all but the last replace the state by the pattern found", minimum=1)


def count(shape: Shape, config: HopfieldConfig) -> int:
    """Parameters: tables for each position, patterns, values, and the unembedding."""
    return config.d * (shape.length * shape.vocab + shape.answers + 2 * config.M)


def _for_budget(shape: Shape, parameters: int) -> HopfieldConfig:
    """About as many parameters in patterns and values as in the tables."""
    tables = shape.length * shape.vocab + shape.answers
    if parameters < tables + 2:
        raise BudgetTooSmall(tables + 2)
    d = max(1, parameters // (2 * tables))
    return HopfieldConfig(d=d, M=(parameters // d - tables) // 2)


ARCHITECTURE = Architecture(
    name="hopfield",
    summary="a modern Hopfield layer: a softmax over learned patterns retrieves a value for each context",
    reference="Ramsauer et al., 'Hopfield Networks is All You Need', 2020, arXiv:2008.02217",
    config=HopfieldConfig,
    build=lazy("membench_hopfield.model:Hopfield"),
    bottleneck=lambda config: min(config.d, config.M),
    embeddings=("tables", "unembed"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[HopfieldConfig]]:
    return [ARCHITECTURE]
