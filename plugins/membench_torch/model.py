"""The layers of torch as modules, with the initial weights that torch gives them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear

from membench.api import Shape
from membench_torch import EncoderConfig, RecurrentConfig


class Recurrent(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A]: the state of the last layer after the last token, unembedded.

    The cells are torch's own, with their weights and initial values; what they compute is written out, because
    torch.func cannot batch torch's fused cells, and replicas would be trained one by one.
    """

    cell: type[nn.LSTMCell | nn.GRUCell]

    def __init__(self, shape: Shape, config: RecurrentConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocab, config.d)
        widths = [config.d] + [config.w] * (config.layers - 1)
        self.cells = nn.ModuleList(self.cell(width, config.w) for width in widths)
        self.unembed = nn.Linear(config.w, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        sequence = list(self.word(tokens).unbind(1))  # S times [batch, d]
        for cell in self.cells:
            sequence = self.states(cell, sequence)  # S times [batch, w]
        logits: Tensor = self.unembed(sequence[-1])
        return logits  # [batch, A]

    def states(self, cell: Any, sequence: list[Tensor]) -> list[Tensor]:
        """The state of one layer after each token."""
        raise NotImplementedError


class LSTM(Recurrent):
    """A cell's content c, which is kept to itself, and its state h."""

    cell = nn.LSTMCell

    def states(self, cell: Any, sequence: list[Tensor]) -> list[Tensor]:
        h = c = sequence[0].new_zeros(len(sequence[0]), cell.hidden_size)
        found = []
        for x in sequence:
            gates = linear(x, cell.weight_ih, cell.bias_ih) + linear(h, cell.weight_hh, cell.bias_hh)
            let_in, keep, content, let_out = gates.chunk(4, 1)  # each [batch, w]
            c = keep.sigmoid() * c + let_in.sigmoid() * content.tanh()
            h = let_out.sigmoid() * c.tanh()
            found.append(h)
        return found


class GRU(Recurrent):
    """A state that is a mixture of what it was and of what is new."""

    cell = nn.GRUCell

    def states(self, cell: Any, sequence: list[Tensor]) -> list[Tensor]:
        h = sequence[0].new_zeros(len(sequence[0]), cell.hidden_size)
        found = []
        for x in sequence:
            reset, keep, new = linear(x, cell.weight_ih, cell.bias_ih).chunk(3, 1)  # each [batch, w]
            reset_h, keep_h, new_h = linear(h, cell.weight_hh, cell.bias_hh).chunk(3, 1)
            new = (new + (reset + reset_h).sigmoid() * new_h).tanh()
            kept = (keep + keep_h).sigmoid()
            h = (1 - kept) * new + kept * h
            found.append(h)
        return found


class TransformerEncoder(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A], read off the last position of the residual stream."""

    def __init__(self, shape: Shape, config: EncoderConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocab, config.d)
        self.position = nn.Embedding(shape.length, config.d)
        layer = nn.TransformerEncoderLayer(
            config.d,
            config.heads,
            config.w,
            config.dropout,
            batch_first=True,
            norm_first=config.norm_first,
        )
        # Nested tensors are for padding, which there is none of.
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.unembed = nn.Linear(config.d, shape.answers, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.word(tokens) + self.position.weight  # [batch, S, d]
        with sdpa_kernel(SDPBackend.MATH):  # the one way to attend that torch.func can batch
            stream = self.encoder(stream)
        logits: Tensor = self.unembed(stream[:, -1])
        return logits  # [batch, A]
