"""The hashed n-gram table: a context's tokens are hashed to rows of tables, and a linear map reads the rows."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class HashedNgramConfig:
    """Tables of M slots, each with its own hash of the context."""

    M: int = option(1024, help="M, slots of a table", minimum=1, maximum=2**31 - 1)
    d: int = option(2, help="d, dimension of a slot", minimum=1)
    hashes: int = option(1, help="tables, each with its own hash function; their rows are read side by side", minimum=1)


def _for_budget(shape: Shape, parameters: int) -> HashedNgramConfig:
    """One table of as many slots as possible: with d = 2 a slot can give any answer."""
    least = 2 + 2 * shape.answers
    if parameters < least:
        raise BudgetTooSmall(least)
    return HashedNgramConfig(M=min(parameters // 2 - shape.answers, 2**31 - 1), d=2)


ARCHITECTURE = Architecture(
    name="hashed-ngram",
    summary="tables whose rows are found by hashing the context, and a linear unembedding",
    reference=(
        "Cheng et al., 'Conditional Memory via Scalable Lookup: A New Axis of Sparsity for Large Language Models', "
        "2026, arXiv:2601.07372 (Engram), its tables alone"
    ),
    config=HashedNgramConfig,
    build=lazy("membench_hashed_ngram.model:HashedNgram"),
    bottleneck=lambda config: config.hashes * config.d,
    constructions={"majority": lazy("membench_hashed_ngram.construct:majority")},
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[HashedNgramConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_hashed_ngram.bounds import bounds

    return bounds()
