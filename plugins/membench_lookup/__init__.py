"""The look-up table: a logit for every context and answer, and so nothing that it cannot memorise."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, Shape, hookimpl, lazy

MAX_CELLS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class LookupConfig:
    """The task's shape says all that there is to choose."""


def _check(shape: Shape, config: LookupConfig) -> None:
    cells = shape.vocab**shape.length * shape.answers
    if cells > MAX_CELLS:
        raise ValueError(
            f"a table of N^S x A = {shape.vocab}^{shape.length} x {shape.answers} = {cells:,} logits is too large for "
            f"lookup; at most {MAX_CELLS:,} are possible"
        )


ARCHITECTURE = Architecture(
    name="lookup",
    summary="a table of logits with one row for every context: the ceiling, at the full price",
    reference="Shannon, 'A Mathematical Theory of Communication', Bell System Technical Journal 27, 1948",
    config=LookupConfig,
    build=lazy("membench_lookup.model:Lookup"),
    check=_check,
)


@hookimpl
def membench_architectures() -> list[Architecture[LookupConfig]]:
    return [ARCHITECTURE]
