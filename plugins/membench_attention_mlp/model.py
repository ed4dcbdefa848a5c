"""The attention-simulated MLP as a module.

A softmax over the scores (a z, 0) puts the weight sigmoid(a z) on the first. So a head that sees one
token with value z, and one bias token with score 0 and value 0, outputs z sigmoid(a z): a neuron.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from membench.api import Shape
from membench_attention_mlp import AttentionMLPConfig


class AttentionMLP(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A], read off the last position of the residual stream."""

    def __init__(self, shape: Shape, config: AttentionMLPConfig) -> None:
        super().__init__()
        d, w = config.d, config.w
        self.word = nn.Embedding(shape.vocab, d)
        self.position = nn.Embedding(shape.length, d)
        self.mixer = Mixer(d)
        self.neurons: Heads | TiedHeads | MaskedHeads  # see the last `reach` positions
        if config.mask == "weights":
            self.neurons = MaskedHeads(d, w, shape.length, config.alpha, config.omega)
        else:
            self.neurons = (TiedHeads if config.tied else Heads)(d, w, config.alpha)
        self.unembed = nn.Linear(d, shape.answers, bias=False)
        near, far = 1 / math.sqrt(d), 1 / math.sqrt(max(w, 1))
        for table in (self.word, self.position, self.unembed):
            nn.init.uniform_(table.weight, -near, near)
        load_mlp(self, _uniform(near, w, d), _uniform(near, w), _uniform(far, d, w))

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.word(tokens) + self.position.weight  # [batch, S, d]
        content = stream[:, stream.shape[1] - self.neurons.reach :]
        content = content + self.mixer(stream, self.neurons.reach)  # [batch, reach, d]
        logits: Tensor = self.unembed(content[:, -1] + self.neurons(content))
        return logits  # [batch, A]


def load_mlp(module: AttentionMLP, W_1: Tensor, b_1: Tensor, W_2: Tensor) -> None:
    """Make the second layer equal the MLP W_2 act(W_1 u + b_1) with act(z) = z sigmoid(alpha z).

    The shapes are [w, d], [w] and [d, w]. A mask in the weights leaks exp(-omega) of the other tokens.
    """
    with torch.no_grad():
        module.neurons.load(W_1, b_1, W_2)


class Mixer(nn.Module):
    """One causal attention head of dimension d."""

    def __init__(self, d: int) -> None:
        super().__init__()
        xavier = math.sqrt(6 / (4 * d))
        self.query = nn.Parameter(_uniform(xavier / math.sqrt(d), d, d))  # in place of a division of the scores
        self.key = nn.Parameter(_uniform(xavier, d, d))
        self.value = nn.Parameter(_uniform(xavier, d, d))
        self.output = nn.Parameter(_uniform(1 / math.sqrt(d), d, d))

    def forward(self, stream: Tensor, queries: int) -> Tensor:
        """The head's output at each of the last `queries` positions: [batch, queries, d]."""
        S = stream.shape[1]
        wanted = _linear(stream[:, S - queries :], self.key.T @ self.query)  # [batch, queries, d]
        if queries == 1:
            weights = (wanted * stream).sum(2).softmax(1)  # [batch, S]: many tiny matrix products are slower
            return _linear((weights[..., None] * stream).sum(1, keepdim=True), self.output @ self.value)
        scores = wanted @ stream.mT  # [batch, queries, S]
        future = torch.ones(queries, S, dtype=torch.bool, device=scores.device).triu(S - queries + 1)
        scores = scores.masked_fill(future, -math.inf)
        return _linear(scores.softmax(2) @ stream, self.output @ self.value)


class Heads(nn.Module):
    """Heads of dimension 1 that read [content | 1], behind a mask that leaves the last token and the bias token."""

    reach = 1

    def __init__(self, d: int, w: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.query = nn.Parameter(torch.empty(w, d + 1))
        self.key = nn.Parameter(torch.empty(w, d + 1))
        self.value = nn.Parameter(torch.empty(w, d + 1))
        self.output = nn.Parameter(torch.empty(d, w))

    def load(self, W_1: Tensor, b_1: Tensor, W_2: Tensor) -> None:
        for own, weight in zip(self.parameters(), _heads(W_1, b_1, W_2, self.alpha), strict=True):
            own.copy_(weight)

    def forward(self, content: Tensor) -> Tensor:
        return _attend_to_self(content[:, -1], self.query, self.key, self.value, self.output)


class TiedHeads(nn.Module):
    """The same heads, made from the MLP's own weights, which are all that is trained."""

    reach = 1

    def __init__(self, d: int, w: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.W_1 = nn.Parameter(torch.empty(w, d))
        self.b_1 = nn.Parameter(torch.empty(w))
        self.W_2 = nn.Parameter(torch.empty(d, w))

    def load(self, W_1: Tensor, b_1: Tensor, W_2: Tensor) -> None:
        for own, weight in zip(self.parameters(), (W_1, b_1, W_2), strict=True):
            own.copy_(weight)

    def forward(self, content: Tensor) -> Tensor:
        return _attend_to_self(content[:, -1], *_heads(self.W_1, self.b_1, self.W_2, self.alpha))


class MaskedHeads(nn.Module):
    """Heads of dimension 1 + S that see every token and the bias token, as [content | 1 | one-hot position].

    They find their own token by its position, with a score that is `omega` higher than elsewhere. All
    four maps are dense, though the output to the constant and the position is never read, and the
    values after the first start at zero, as do the outputs that would use them, and so stay there.
    """

    def __init__(self, d: int, w: int, length: int, alpha: float, omega: float) -> None:
        super().__init__()
        self.reach = length
        self.alpha, self.omega = alpha, omega
        rows, width = 1 + length, d + 1 + length
        self.query = nn.Parameter(torch.empty(w, rows, width))
        self.key = nn.Parameter(torch.empty(w, rows, width))
        self.value = nn.Parameter(torch.empty(w, rows, width))
        self.output = nn.Parameter(torch.empty(w, width, rows))

    def load(self, W_1: Tensor, b_1: Tensor, W_2: Tensor) -> None:
        d = W_1.shape[1]
        query, key, value, output = _heads(W_1, b_1, W_2, self.alpha)
        position = torch.eye(self.reach).to(W_1)
        for parameter in self.parameters():
            parameter.zero_()
        self.query[:, 0, : d + 1] = query
        self.query[:, 0, d] -= self.omega
        self.query[:, 1:, d + 1 :] = self.omega * position
        self.key[:, 0, : d + 1] = key
        self.key[:, 1:, d + 1 :] = position
        self.value[:, 0, : d + 1] = value
        self.output[:, :d, 0] = output.T

    def forward(self, content: Tensor) -> Tensor:
        batch, S, d = content.shape
        position = torch.eye(S, dtype=content.dtype, device=content.device).expand(batch, S, S)
        tokens = torch.cat([pad(content, (0, 1), value=1.0), position], dim=2)  # [batch, S, width]
        query = self._per_head(tokens[:, -1:], self.query)  # [batch, 1, w, 1 + S]
        key = self._per_head(tokens, self.key)  # [batch, S, w, 1 + S]
        scores = (query * key).sum(3)  # [batch, S, w]
        weights = pad(scores, (0, 0, 0, 1)).softmax(1)[:, :S]  # the bias token scores 0, and adds nothing
        mixed = (weights[..., None] * self._per_head(tokens, self.value)).sum(1)  # [batch, w, 1 + S]
        return linear(mixed.flatten(1), self.output[:, :d].transpose(0, 1).flatten(1))

    def _per_head(self, tokens: Tensor, weight: Tensor) -> Tensor:
        return _linear(tokens, weight.flatten(0, 1)).reshape(*tokens.shape[:2], *weight.shape[:2])


def _heads(W_1: Tensor, b_1: Tensor, W_2: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value [w, d + 1] and output [d, w] of the heads of dimension 1 that simulate an MLP."""
    neuron = torch.cat([W_1, b_1[:, None]], dim=1)
    constant = pad(torch.zeros_like(W_1), (0, 1), value=1.0)
    return alpha * neuron, constant, neuron, W_2


def _attend_to_self(content: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> Tensor:
    """Attention of each token [batch, d] over itself and the bias token, whose zero vector has score and value 0.

    A softmax over a score and 0 is a sigmoid, and one pass over the scores instead of several.
    """
    token = pad(content, (0, 1), value=1.0)  # [batch, d + 1]
    score = linear(token, query) * linear(token, key)  # [batch, w]
    return linear(score.sigmoid() * linear(token, value), output)


def _linear(vectors: Tensor, weight: Tensor) -> Tensor:
    """The linear map on a flat batch: with more axes, vmap over replicas would copy the weight for every vector."""
    return linear(vectors.flatten(0, -2), weight).reshape(*vectors.shape[:-1], len(weight))


def _uniform(bound: float, *shape: int) -> Tensor:
    return torch.empty(*shape).uniform_(-bound, bound)
