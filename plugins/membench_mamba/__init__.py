"""Mamba, by mambapy, which is written in torch alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class MambaConfig:
    """Blocks of a selective state space, by the names that mambapy gives their sizes."""

    d: int = option(16, help="d, dimension of the residual stream", minimum=1)
    layers: int = option(1, help="blocks", minimum=1)
    d_state: int = option(16, help="numbers of state for each channel", minimum=1)
    expand_factor: int = option(2, help="channels of a block in multiples of d", minimum=1)
    d_conv: int = option(4, help="tokens that the convolution of a block sees", minimum=1)


def count_block(shape: Shape, d: int) -> int:
    """Parameters of one block of this width, all else by default, and of what is around it."""
    channels, state, rank = 2 * d, 16, math.ceil(d / 16)
    projections = 2 * d * channels + channels * (rank + 2 * state) + rank * channels + channels + channels * d
    convolution = (4 + 1) * channels
    dynamics = channels * state + channels
    return d * (shape.vocab + shape.answers) + projections + convolution + dynamics + 2 * d  # two normalisations


def _for_budget(shape: Shape, parameters: int) -> MambaConfig:
    """The widest single block."""
    if parameters < count_block(shape, 1):
        raise BudgetTooSmall(count_block(shape, 1))
    d = 1
    while count_block(shape, d + 1) <= parameters:
        d += 1
    return MambaConfig(d=d)


def _state(shape: Shape, config: MambaConfig) -> int:
    """Of each channel, its state and the earlier tokens that its convolution still sees."""
    return config.layers * config.expand_factor * config.d * (config.d_state + config.d_conv - 1)


ARCHITECTURE = Architecture(
    name="mamba",
    summary="a selective state space model (mambapy), read after the last token",
    reference=(
        "Gu, Dao, 'Mamba: Linear-Time Sequence Modeling with Selective State Spaces', 2023, arXiv:2312.00752; "
        "mambapy, https://github.com/alxndrTL/mamba.py"
    ),
    config=MambaConfig,
    build=lazy("membench_mamba.model:MambaModel"),
    bottleneck=lambda config: config.d,
    state=_state,
    embeddings=("word", "unembed"),
    for_budget=_for_budget,
    packages={"mambapy": "membench[mamba]"},
)


@hookimpl
def membench_architectures() -> list[Architecture[MambaConfig]]:
    return [ARCHITECTURE]
