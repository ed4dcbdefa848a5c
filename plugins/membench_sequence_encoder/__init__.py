"""The sequence encoder: any vector for each context, and one linear map to logits."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, Shape, hookimpl, lazy, option

MAX_ROWS = 5_000_000  # at the default d nearly a gigabyte, with gradient and Adam's moments


@dataclass(frozen=True, kw_only=True)
class SequenceEncoderConfig:
    """The dimension through which all logits pass."""

    d: int = option(10, help="d, dimension of the vector of a context", minimum=1)


def _check(shape: Shape, config: SequenceEncoderConfig) -> None:
    rows = shape.vocab**shape.length
    if rows > MAX_ROWS:
        raise ValueError(
            f"a table of N^S = {shape.vocab}^{shape.length} = {rows:,} rows is too large for sequence-encoder; "
            f"at most {MAX_ROWS:,} are possible"
        )


def _for_budget(shape: Shape, parameters: int) -> SequenceEncoderConfig:
    """The largest d that fits, but not above A: with d = A the logits of every context are free already."""
    each = shape.answers + shape.vocab**shape.length
    if parameters < each:
        raise BudgetTooSmall(each)
    return SequenceEncoderConfig(d=min(parameters // each, shape.answers))


ARCHITECTURE = Architecture(
    name="sequence-encoder",
    summary="a free vector of dimension d for every context: what no model with a linear unembedding of d exceeds",
    reference=(
        "Dana, Pydi, Chevaleyre, 'Memorization in Attention-only Transformers', 2024, arXiv:2411.10115, Definition 1"
    ),
    config=SequenceEncoderConfig,
    build=lazy("membench_sequence_encoder.model:SequenceEncoder"),
    bottleneck=lambda config: config.d,
    check=_check,
    embeddings=("unembed",),
    constructions={
        "optimal-scale": lazy("membench_sequence_encoder.construct:optimal_scale"),
        "equation-6": lazy("membench_sequence_encoder.construct:equation_6"),
        "best-found": lazy("membench_sequence_encoder.construct:best_found"),
    },
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[SequenceEncoderConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_sequence_encoder.bounds import bounds

    return bounds()
