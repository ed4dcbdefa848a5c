"""Product-key memory: n^2 slots whose keys are pairs of n + n half keys, of which a query reads k."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class ProductKeyConfig:
    """A memory of n^2 slots, read by heads that find the k nearest keys each."""

    d: int = option(16, help="d, dimension of queries and values; even", minimum=2)
    n: int = option(8, help="n, half keys on each side: the memory has n^2 slots", minimum=1)
    k: int = option(4, help="k, slots that a head reads; no more than there are", minimum=1)
    heads: int = option(1, help="heads, each with its own queries and keys on the same values", minimum=1)

    def __post_init__(self) -> None:
        if self.d % 2:
            raise ValueError(f"d={self.d} must be even: half keys have d/2 numbers")


def count(shape: Shape, config: ProductKeyConfig) -> int:
    """Parameters: tables for each position, queries and half keys of the heads, the values, and the unembedding."""
    d, n = config.d, config.n
    return d * (shape.length * shape.vocab + shape.answers) + config.heads * (d * d + n * d) + n * n * d


def _for_budget(shape: Shape, parameters: int) -> ProductKeyConfig:
    """One head, and the largest memory that leaves about two thirds of the parameters to the tables."""
    least = count(shape, ProductKeyConfig(d=2, n=1))
    if parameters < least:
        raise BudgetTooSmall(least)
    d = max(2, 2 * parameters // (3 * (shape.length * shape.vocab + shape.answers)) // 2 * 2)
    while count(shape, ProductKeyConfig(d=d, n=1)) > parameters:
        d -= 2
    n = 1
    while count(shape, ProductKeyConfig(d=d, n=n + 1)) <= parameters:
        n += 1
    return ProductKeyConfig(d=d, n=n)


ARCHITECTURE = Architecture(
    name="product-key",
    summary="a memory of n^2 slots with product keys, of which each context reads the k nearest",
    reference="Lample et al., 'Large Memory Layers with Product Keys', 2019, arXiv:1907.05242",
    config=ProductKeyConfig,
    build=lazy("membench_product_key.model:ProductKeyMemory"),
    bottleneck=lambda config: config.d,
    embeddings=("tables", "unembed"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[ProductKeyConfig]]:
    return [ARCHITECTURE]
