"""Causal language models of transformers, from a config and with random weights."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class HFConfig:
    """The sizes that most causal models have, by one name each; model.py says what each config calls them."""

    config: str = option("gpt2", help="model type, as transformers names it: gpt2, llama, mamba, mixtral, ..")
    n_embd: int = option(16, help="dimension of the residual stream (hidden_size)", minimum=1)
    n_layer: int = option(1, help="layers (num_hidden_layers)", minimum=1)
    n_head: int = option(None, help="attention heads of a layer, if it has some; auto is 2", minimum=1)
    n_kv_head: int = option(None, help="heads of keys and values, if there may be fewer; auto is n_head", minimum=1)
    n_inner: int = option(None, help="width of an MLP, if it can be chosen; auto is 4 n_embd", minimum=1)
    n_state: int = option(None, help="state of a channel, if it has some; auto is the config's default", minimum=1)
    n_expert: int = option(None, help="experts of a layer, if it has some; auto is 4", minimum=1)
    n_expert_used: int = option(None, help="experts that a token is sent to; auto is 2", minimum=1)
    tied: bool = option(None, help="one table for tokens and answers; auto is the config's default")
    dropout: float = option(0.0, help="all kinds of dropout that the config has", minimum=0, maximum=0.99)

    def __post_init__(self) -> None:
        if self.n_head is not None and self.n_embd % self.n_head:
            raise ValueError(f"n_head={self.n_head} must divide n_embd={self.n_embd}")


def _for_budget(shape: Shape, parameters: int) -> HFConfig:
    """The widest GPT-2 of one layer and two heads."""

    def count(d: int) -> int:
        return d * (max(shape.vocab, shape.answers) + shape.length) + 12 * d * d + 15 * d

    if parameters < count(2):
        raise BudgetTooSmall(count(2))
    d = 2
    while count(d + 2) <= parameters:
        d += 2
    return HFConfig(n_embd=d)


ARCHITECTURE = Architecture(
    name="hf",
    summary="any causal language model of transformers, from a config and with random weights",
    reference=(
        "Wolf et al., 'Transformers: State-of-the-Art Natural Language Processing', 2020, arXiv:1910.03771; "
        "each config's own paper"
    ),
    config=HFConfig,
    build=lazy("membench_hf.model:CausalModel"),
    check=lazy("membench_hf.model:check"),
    # The tables of the most usual families; of another, tables count as any other parameters.
    embeddings=(
        "model.transformer.wte",
        "model.transformer.wpe",
        "model.model.embed_tokens",
        "model.backbone.embeddings",
        "model.lm_head",
    ),
    for_budget=_for_budget,
    packages={"transformers": "membench[hf]"},
)


@hookimpl
def membench_architectures() -> list[Architecture[HFConfig]]:
    return [ARCHITECTURE]
