"""Mamba as a module: mambapy's blocks between an embedding and an unembedding.

mambapy's own language model is not used, because it takes token 0 for padding and never trains its vector.
"""

from __future__ import annotations

from mambapy.mamba import Mamba, RMSNorm
from mambapy.mamba import MambaConfig as Blocks
from torch import Tensor, nn

from membench.api import Shape
from membench_mamba import MambaConfig


class MambaModel(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A], read off the last position of the residual stream."""

    def __init__(self, shape: Shape, config: MambaConfig) -> None:
        super().__init__()
        blocks = Blocks(
            d_model=config.d,
            n_layers=config.layers,
            d_state=config.d_state,
            expand_factor=config.expand_factor,
            d_conv=config.d_conv,
            pscan=False,  # one token after the other: contexts are short, and torch.func can batch it
        )
        self.word = nn.Embedding(shape.vocab, config.d)
        self.blocks = Mamba(blocks)
        self.norm = RMSNorm(config.d, blocks.rms_norm_eps)
        self.unembed = nn.Linear(config.d, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.blocks(self.word(tokens))  # [batch, S, d]
        logits: Tensor = self.unembed(self.norm(stream[:, -1]))
        return logits  # [batch, A]
