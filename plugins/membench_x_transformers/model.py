"""A decoder of x-transformers, read at the last token."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from x_transformers import Decoder, TransformerWrapper

from membench.api import Shape
from membench_x_transformers import XTransformersConfig


class XTransformer(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: those of the decoder after the last token."""

    def __init__(self, shape: Shape, config: XTransformersConfig) -> None:
        super().__init__()
        self.decoder = TransformerWrapper(
            num_tokens=shape.vocab,
            max_seq_len=shape.length,
            logits_dim=shape.answers,
            attn_layers=Decoder(
                dim=config.d,
                depth=config.layers,
                heads=config.heads,
                attn_dim_head=config.d_h,
                verbose=False,
                **_switches(config),
            ),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.decoder(tokens)  # [batch, S, A]
        return logits[:, -1]


def _switches(config: XTransformersConfig) -> dict[str, Any]:
    """What a preset sets in x-transformers, all else being as it is there by default."""
    if not config.mlp:
        return {"custom_layers": ("a",) * config.layers, "attn_num_mem_kv": config.memory}
    return {"ff_mult": config.mlp, "ff_glu": config.preset == "glu", "weight_tie_layers": config.preset == "tied"}
