"""A causal model of transformers, read at the last token."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import set_verbosity_error

from membench.api import Shape
from membench_hf import HFConfig

set_verbosity_error()  # it would advise kernels for other machines, in the middle of a table

# What configs call a size. Of several names that a config has, all get the value: experts have widths of their own.
NAMES = {
    "n_embd": ("hidden_size", "n_embd", "d_model"),
    "n_layer": ("num_hidden_layers", "n_layer", "num_layers"),
    "n_head": ("num_attention_heads", "n_head", "num_heads"),
    "n_kv_head": ("num_key_value_heads",),
    "n_inner": ("intermediate_size", "moe_intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "n_state": ("state_size",),
    "n_expert": ("num_local_experts", "num_experts", "n_routed_experts"),
    "n_expert_used": ("num_experts_per_tok",),
    "tied": ("tie_word_embeddings",),
}
LENGTHS = ("max_position_embeddings", "n_positions")
# A head's own dimension, where a config has one apart; heads then divide the stream as they do elsewhere.
HEAD_DIMENSIONS = ("head_dim", "rotary_dim")
# Tokens here are facts: none of them ends a text, and none is padding, whose vector would not be trained.
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")


class CausalModel(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A].

    The vocabulary of a causal model is one for what it reads and what it says: it has the larger of N and A, and
    the first A of its logits after the last token are taken.
    """

    def __init__(self, shape: Shape, config: HFConfig) -> None:
        super().__init__()
        self.answers = shape.answers
        self.model = _model(translate(shape, config))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=tokens, use_cache=False).logits  # [batch, S, max(N, A)]
        return logits[:, -1, : self.answers]


def check(shape: Shape, config: HFConfig) -> None:
    """ValueError for a config that transformers does not have, or whose model cannot be built with these options."""
    translated = translate(shape, config)
    try:
        with torch.device("meta"):  # without memory for its weights
            _model(translated)
    except Exception as error:  # whatever a model may raise
        raise ValueError(f"config={config.config} cannot be built: {type(error).__name__}: {_line(error)}") from None


def _model(config: Any) -> nn.Module:
    """With attention and experts written out as products that torch.func can batch, and not fused."""
    model: nn.Module = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="batched_mm"
    )
    return model


def translate(shape: Shape, config: HFConfig) -> Any:
    """The config of transformers that was asked for."""
    kind = _kind(config.config)
    known = set(inspect.signature(kind).parameters) - {"kwargs"}
    heads = config.n_head or 2
    sizes = {
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": heads,
        "n_kv_head": config.n_kv_head or heads,
        "n_inner": config.n_inner or 4 * config.n_embd,
        "n_expert": config.n_expert or 4,
        "n_expert_used": config.n_expert_used or min(2, config.n_expert or 4),
    }
    sizes |= {name: value for name in ("n_state", "tied") if (value := getattr(config, name)) is not None}
    values: dict[str, Any] = {}
    for option, value in sizes.items():
        found = known.intersection(NAMES[option])
        if not found and getattr(config, option) is not None:
            raise ValueError(
                f"config={config.config} has no {option}: none of {', '.join(NAMES[option])} is in its config"
            )
        values |= dict.fromkeys(found, value)
    values |= dict.fromkeys(known.intersection(LENGTHS), shape.length)
    values |= dict.fromkeys(known.intersection(HEAD_DIMENSIONS), config.n_embd // heads)
    values |= dict.fromkeys(known.intersection(SPECIAL), None)
    values |= {name: config.dropout for name in known if name.endswith(("dropout", "pdrop", "dropout_prob"))}
    values |= dict.fromkeys(known.intersection({"layerdrop"}), 0.0)
    values |= dict.fromkeys(known.intersection({"use_associative_scan"}), False)  # compiled for long texts
    try:
        return kind(vocab_size=max(shape.vocab, shape.answers), **values)
    except Exception as error:  # what a config's own validation raises has many types
        raise ValueError(f"config={config.config} refuses its options: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _kind(name: str) -> Any:
    """The class of config of this name, for a causal model that reads plain tokens."""
    if name not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        near = difflib.get_close_matches(name, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        usual = "gpt2, llama, mamba, mixtral"
        raise ValueError(f"config={name} is no causal model of transformers; {hint}there are {usual} and more")
    kind = CONFIG_MAPPING[name]
    missing = {"vocab_size", "hidden_size"} - {*inspect.signature(kind).parameters, *kind.attribute_map}
    if missing:
        raise ValueError(
            f"config={name} has no {' and no '.join(sorted(missing))} of its own: it is made of other configs"
        )
    return kind
