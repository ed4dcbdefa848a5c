"""The attention-only transformer: heads that read the residual stream and write to it, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

from membench.api import Architecture, Bound, NotApplicable, Shape, hookimpl, lazy, option


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


def count(shape: Shape, d: int, H: int) -> int:
    """Parameters of the formal model with one layer and d_h = d."""
    return d * (shape.vocab + shape.length + shape.answers + 4 * d * H)


def _for_budget(shape: Shape, parameters: int) -> AttentionOnlyConfig:
    """The formal model with d_h = d that should memorise most.

    Each parameter of a head memorises about as much as any other once d is large enough, and the
    embeddings memorise little. The published slopes per head at N=50, d=3..13, divided by the
    head's 4 d^2 parameters, follow 1 - exp(-(d/4)^2): so the best d is small, but not too small. At
    N=50 with 2000 and 4000 parameters, no other d from 4 to 12 was seen to train clearly better.
    """
    smallest = count(shape, 1, 1)
    if parameters < smallest:
        raise ValueError(
            f"a budget of {parameters} parameters is too small for aot: with N={shape.vocab}, S={shape.length} and "
            f"A={shape.answers} it needs at least {smallest}"
        )
    most_heads = {d: (parameters - count(shape, d, 0)) // (4 * d * d) for d in range(1, math.isqrt(parameters) + 1)}

    def memory(d: int) -> float:
        return 4 * d * d * most_heads[d] * (1 - math.exp(-((d / 4) ** 2)))

    d = max((d for d, H in most_heads.items() if H >= 1), key=memory)
    return AttentionOnlyConfig(d=d, H=most_heads[d])


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
