"""The attention-only transformer: heads that read the residual stream and write to it, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, NotApplicable, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class AttentionOnlyConfig:
    """The formal model by default; `shared_projection` gives the one that the paper's experiments trained."""

    d: int = option(10, help="d, dimension of the residual stream", minimum=1)
    d_h: int = option(None, help="d_h, dimension of a head; auto is d", minimum=1)
    H: int = option(20, help="H, heads in each layer", minimum=0)
    layers: int = option(1, help="attention layers", minimum=1)
    # The formal model has no such factor. It changes no function that the model can be, only how well it trains.
    scale: bool = option(True, help="divide scores by sqrt(d_h)")
    skip_position: bool = option(None, help="residual stream contains the position; auto is not shared_projection")
    shared_projection: bool = option(False, help="heads are d_h x d_h and share one compression from d to d_h and back")
    one_projection: bool = option(False, help="all layers share one such projection, not each its own", later=True)

    def __post_init__(self) -> None:
        automatic = {"d_h": self.d, "skip_position": not self.shared_projection}
        for name, value in automatic.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if not self.shared_projection and self.d_h > self.d:
            raise ValueError(f"d_h={self.d_h} must be at most d={self.d}, unless shared_projection is true")
        if self.one_projection and not self.shared_projection:
            raise ValueError("one_projection=true needs shared_projection=true: it is the projection that layers share")
        if self.shared_projection and self.skip_position and self.d_h != self.d:
            raise ValueError(
                f"skip_position=true needs d_h={self.d_h} to equal d={self.d} when shared_projection is true, "
                "because positions are then vectors of dimension d_h"
            )


def _for_budget(shape: Shape, parameters: int) -> AttentionOnlyConfig:
    """The formal model with one layer, heads of dimension 2, and two fifths of the budget for the embeddings.

    Fitted to what `membench tune` found, and trainings beside it. With 1,000 parameters at N=32 d=6, d_h=1 was best;
    with 3,000 at N=50 d=12 held 0.73 of the facts for d_h=2, 0.72 for d_h=3, and d=d_h=6 held 0.55; with 10,000 on
    5,000 facts at N=100, after brief trainings at one rate, d=20 held 0.61 for d_h=2, 0.60 for d_h=1, and d=d_h=9 0.44.
    More than N or A dimensions are of no use.
    """
    tables = shape.vocab + shape.length + shape.answers  # rows of the embeddings
    if parameters < tables + 4:
        raise BudgetTooSmall(tables + 4)
    d = max(1, min(round(0.4 * parameters / tables), shape.vocab - 1, shape.answers - 1))
    while d > 1 and parameters < d * tables + 4 * d * 2:  # no room for a head
        d -= 1
    d_h = min(d, 2)
    return AttentionOnlyConfig(d=d, d_h=d_h, H=(parameters - d * tables) // (4 * d * d_h))


def _identifiable(shape: Shape, config: AttentionOnlyConfig) -> int:
    from membench_aot.bounds import identifiable_parameters

    if config.shared_projection or config.layers > 1 or not config.skip_position:
        raise NotApplicable("counted for one layer of the formal model")
    if config.d >= min(shape.vocab, shape.answers):
        raise NotApplicable(f"counted for d < N and d < A, not d={config.d}, N={shape.vocab} and A={shape.answers}")
    return identifiable_parameters(shape, config.d, config.d_h, config.H)


ARCHITECTURE = Architecture(
    name="aot",
    summary="attention-only transformer: heads and a residual stream, without MLP or normalisation",
    reference="Dana, Pydi, Chevaleyre, 'Memorization in Attention-only Transformers', 2024, arXiv:2411.10115",
    config=AttentionOnlyConfig,
    build=lazy("membench_aot.model:AttentionOnly"),
    bottleneck=lambda config: config.d,
    embeddings=("word", "position", "unembed"),
    state=lambda shape, config: 2 * config.layers * config.H * config.d_h * (shape.length - 1),  # keys and values
    identifiable=_identifiable,
    constructions={
        "theorem-1": lazy("membench_aot.construct:theorem_1"),
        "embedding-assisted": lazy("membench_aot.construct:embedding_assisted"),
        "convex-readout": lazy("membench_aot.construct:convex_readout"),
        "distribution": lazy("membench_aot.construct:distribution"),
    },
    kernel=lazy("membench_aot.kernel:make_trainer"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[AttentionOnlyConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_aot.bounds import bounds

    return bounds()
