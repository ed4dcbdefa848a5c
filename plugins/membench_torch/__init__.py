"""Layers that come with torch, between an embedding and an unembedding: LSTM, GRU and a transformer encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from membench.api import Architecture, BudgetTooSmall, Shape, hookimpl, lazy, option

GATES = {"lstm": 4, "gru": 3}


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Layers of torch.nn.LSTMCell or torch.nn.GRUCell, as wide as each other."""

    d: int = option(16, help="d, dimension of the vectors of tokens", minimum=1)
    w: int = option(None, help="w, dimension of the state of a layer; auto is d", minimum=1)
    layers: int = option(1, help="layers, each reading the states of the one before", minimum=1)

    def __post_init__(self) -> None:
        if self.w is None:
            object.__setattr__(self, "w", self.d)


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Layers of torch.nn.TransformerEncoderLayer."""

    d: int = option(16, help="d, dimension of the residual stream", minimum=1)
    heads: int = option(2, help="attention heads of a layer; they divide d", minimum=1)
    w: int = option(None, help="w, width of the MLP of a layer; auto is 4 d", minimum=1)
    layers: int = option(1, help="layers", minimum=1)
    norm_first: bool = option(False, help="normalise before attention and MLP, not after")
    dropout: float = option(0.0, help="dropout in training; torch's own default is 0.1", minimum=0, maximum=0.99)

    def __post_init__(self) -> None:
        if self.d % self.heads:
            raise ValueError(f"heads={self.heads} must divide d={self.d}")
        if self.w is None:
            object.__setattr__(self, "w", 4 * self.d)


def count_recurrent(shape: Shape, config: RecurrentConfig, gates: int) -> int:
    """Parameters: both tables, and in each layer gates that read its input and its state, with two biases."""
    d, w = config.d, config.w
    later = (config.layers - 1) * (2 * w * w + 2 * w)
    return d * shape.vocab + w * shape.answers + gates * (d * w + w * w + 2 * w + later)


def count_encoder(shape: Shape, config: EncoderConfig) -> int:
    """Parameters: three tables, and in each layer attention, an MLP and two normalisations, all with biases."""
    d, w = config.d, config.w
    return d * sum(shape) + config.layers * (4 * d * d + 2 * d * w + 9 * d + w)


def _lstm_for_budget(shape: Shape, parameters: int) -> RecurrentConfig:
    """A single layer whose state is about as wide as its tokens' vectors."""
    return _recurrent_for_budget("lstm", shape, parameters, lambda w: w)


def _gru_for_budget(shape: Shape, parameters: int) -> RecurrentConfig:
    """A single layer whose state is about twice as wide as its tokens' vectors."""
    return _recurrent_for_budget("gru", shape, parameters, lambda w: (w + 1) // 2)


def _recurrent_for_budget(name: str, shape: Shape, parameters: int, balanced: Callable[[int], int]) -> RecurrentConfig:
    """The widest state with vectors of tokens that are balanced with it, and for the rest of the budget wider ones."""

    def count(d: int, w: int) -> int:
        return count_recurrent(shape, RecurrentConfig(d=d, w=w), GATES[name])

    if parameters < (least := count(1, 1)):
        raise BudgetTooSmall(least)
    w = _largest(lambda w: count(balanced(w), w), parameters)
    return RecurrentConfig(d=_largest(lambda d: count(d, w), parameters), w=w)


def _largest(count: Callable[[int], int], parameters: int) -> int:
    """The largest number with at most so many parameters, of which 1 has no more."""
    number = 1
    while count(number + 1) <= parameters:
        number += 1
    return number


def _encoder_for_budget(shape: Shape, parameters: int) -> EncoderConfig:
    """One layer of two heads, whose MLP is the next to the usual four times as wide as the stream."""

    def widest(d: int) -> int:
        least = count_encoder(shape, EncoderConfig(d=d, w=1)) - (2 * d + 1)
        return (parameters - least) // (2 * d + 1)

    if parameters < (least := count_encoder(shape, EncoderConfig(d=2, w=1))):
        raise BudgetTooSmall(least)
    d = 2
    while widest(d + 2) >= 4 * (d + 2):
        d += 2
    return EncoderConfig(d=d, w=widest(d))


LSTM = Architecture(
    name="lstm",
    summary="long short-term memory, read after the last token",
    reference="Hochreiter, Schmidhuber, 'Long Short-Term Memory', Neural Computation 9, 1997",
    config=RecurrentConfig,
    build=lazy("membench_torch.model:LSTM"),
    bottleneck=lambda config: config.w,
    state=lambda shape, config: 2 * config.w * config.layers,
    embeddings=("word", "unembed"),
    for_budget=_lstm_for_budget,
)

GRU = Architecture(
    name="gru",
    summary="gated recurrent units, read after the last token",
    reference=(
        "Cho et al., 'Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation', "
        "2014, arXiv:1406.1078"
    ),
    config=RecurrentConfig,
    build=lazy("membench_torch.model:GRU"),
    bottleneck=lambda config: config.w,
    state=lambda shape, config: config.w * config.layers,
    embeddings=("word", "unembed"),
    for_budget=_gru_for_budget,
)

ENCODER = Architecture(
    name="transformer-encoder",
    summary="torch.nn.TransformerEncoder with learned positions, read at the last token",
    reference="Vaswani et al., 'Attention Is All You Need', 2017, arXiv:1706.03762",
    config=EncoderConfig,
    build=lazy("membench_torch.model:TransformerEncoder"),
    bottleneck=lambda config: config.d,
    embeddings=("word", "position", "unembed"),
    for_budget=_encoder_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[Any]]:
    return [LSTM, GRU, ENCODER]
