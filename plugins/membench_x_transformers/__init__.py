"""Decoders of x-transformers, in presets: what its switches change, measured."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option

PRESETS = ("plain", "attention-only", "memory", "glu", "tied")


@dataclass(frozen=True, kw_only=True)
class XTransformersConfig:
    """A decoder, and one of the ideas that x-transformers implements."""

    preset: str = option(
        "plain",
        help="plain: attention and MLP in turn; attention-only: without MLPs; memory: attention alone, with persistent "
        "keys and values beside those of the tokens; glu: gated MLPs; tied: one layer's weights for all layers",
        choices=PRESETS,
    )
    d: int = option(16, help="d, dimension of the residual stream", minimum=1)
    layers: int = option(None, help="layers; auto is 1, and 2 with preset=tied", minimum=1)
    heads: int = option(2, help="attention heads of a layer", minimum=1)
    d_h: int = option(8, help="d_h, dimension of a head", minimum=1)
    memory: int = option(None, help="persistent keys of a head; auto is 16 with preset=memory, else 0", minimum=0)
    mlp: int = option(None, help="width of an MLP in multiples of d; auto is 4, or 0 where there is none", minimum=0)

    def __post_init__(self) -> None:
        remembers, has_mlp = self.preset == "memory", self.preset not in ("attention-only", "memory")
        self._settle("layers", 2 if self.preset == "tied" else 1)
        self._settle("memory", 16 if remembers else 0)
        self._settle("mlp", 4 if has_mlp else 0)
        if bool(self.memory) != remembers:
            raise ValueError(f"memory={self.memory} does not fit preset={self.preset}: only preset=memory has some")
        if bool(self.mlp) != has_mlp:
            raise ValueError(f"mlp={self.mlp} does not fit preset={self.preset}: plain, glu and tied have MLPs")

    def _settle(self, name: str, automatic: int) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, automatic)


def count_plain(shape: Shape, d: int) -> int:
    """Parameters of a plain decoder of one layer with four heads of 4, and an MLP of twice its width."""
    attention = 4 * d * 16
    mlp = 4 * d * d + 3 * d
    return d * sum(shape) + attention + mlp + 3 * d  # a normalisation before each, and one in the end


def _for_budget(shape: Shape, parameters: int) -> XTransformersConfig:
    """The widest plain decoder of one layer, with four heads of 4 and an MLP of twice its width."""
    if parameters < count_plain(shape, 1):
        raise BudgetTooSmall(count_plain(shape, 1))
    d = 1
    while count_plain(shape, d + 1) <= parameters:
        d += 1
    return XTransformersConfig(d=d, heads=4, d_h=4, mlp=2)


ARCHITECTURE = Architecture(
    name="x-transformers",
    summary="a decoder of x-transformers: plain, attention-only, persistent memory, GLU or tied layers",
    reference=(
        "Wang, x-transformers, https://github.com/lucidrains/x-transformers; memory: Sukhbaatar et al., 'Augmenting "
        "Self-attention with Persistent Memory', 2019, arXiv:1907.01470; glu: Shazeer, 'GLU Variants Improve "
        "Transformer', 2020, arXiv:2002.05202; tied: Lan et al., 'ALBERT', 2019, arXiv:1909.11942"
    ),
    config=XTransformersConfig,
    build=lazy("membench_x_transformers.model:XTransformer"),
    bottleneck=lambda config: config.d,
    embeddings=("decoder.token_emb", "decoder.pos_emb", "decoder.to_logits"),
    for_budget=_for_budget,
    packages={"x_transformers": "membench[x-transformers]"},
)


@hookimpl
def membench_architectures() -> list[Architecture[XTransformersConfig]]:
    return [ARCHITECTURE]
