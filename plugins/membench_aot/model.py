"""The attention-only transformer as a module.

A head's query and key maps only ever act together, and so do its value and output maps, so each
pair is multiplied first. Then nothing as large as heads x positions x d_h is made for a context.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from membench.api import Shape
from membench_aot import AttentionOnlyConfig


class Shared(NamedTuple):
    """What all layers are given: positions, where the stream does not hold them, and a projection, where they share it.

    The model holds it, and not each layer: a parameter has one name only.
    """

    position: Tensor | None
    compress: Tensor | None
    decompress: Tensor | None


class AttentionOnly(nn.Module):
    """Maps tokens int64[batch, S] to logits [batch, A], read off the last position of the residual stream."""

    def __init__(self, shape: Shape, config: AttentionOnlyConfig) -> None:
        super().__init__()
        self.shape = shape
        self.skip_position = config.skip_position
        self.word = nn.Embedding(shape.vocab, config.d)
        self.position = nn.Embedding(shape.length, config.d_h if config.shared_projection else config.d)
        self.layers = nn.ModuleList(Heads(config) for _ in range(config.layers))
        self.compress, self.decompress = _projection(config) if config.one_projection else (None, None)
        self.unembed = nn.Linear(config.d, shape.answers, bias=False)
        for table in (self.word, self.position, self.unembed):
            _uniform(table.weight, 1 / math.sqrt(table.weight.shape[1]))

    def forward(self, tokens: Tensor) -> Tensor:
        every = self.shape.vocab**self.shape.length
        dense = len(self.layers) == 1 and 2 * len(tokens) >= every  # half of all contexts cost as much either way
        logits: Tensor = self.unembed(self._of_all_contexts(tokens) if dense else self._of_each_context(tokens))
        return logits  # [batch, A]

    def _of_each_context(self, tokens: Tensor) -> Tensor:
        stream = self._stream(self.word(tokens))  # [batch, S, d]
        for layer in self.layers[:-1]:
            stream = stream + layer(stream, self._shared(), queries=stream.shape[1])
        last = cast("Heads", self.layers[-1])
        if self.shape.length == 2:
            return stream[:, -1] + last.at_pairs(stream, self._shared())  # [batch, d]
        update: Tensor = last(stream, self._shared(), queries=1)[:, 0]
        return stream[:, -1] + update  # [batch, d]

    def _of_all_contexts(self, tokens: Tensor) -> Tensor:
        """The same for one layer, by way of all N^S contexts: much faster when the batch is as large as that."""
        N, S, _ = self.shape
        radix = torch.tensor([N ** (S - 1 - s) for s in range(S)], device=tokens.device)
        stream = self._stream(self.word.weight[:, None].expand(N, S, -1))  # [N, S, d], each token at each position
        heads = cast("Heads", self.layers[0])
        every = stream[:, -1] + heads.everywhere(stream, self._shared())  # [N, ..., N, d]
        return embedding((tokens * radix).sum(1), every.flatten(0, S - 1))  # [batch, d]

    def _stream(self, words: Tensor) -> Tensor:
        return words + self.position.weight if self.skip_position else words

    def _shared(self) -> Shared:
        return Shared(None if self.skip_position else self.position.weight, self.compress, self.decompress)


class Heads(nn.Module):
    """The H heads of one layer. What they read has dimension `inner`: d, or d_h when they share a projection."""

    def __init__(self, config: AttentionOnlyConfig) -> None:
        super().__init__()
        H, d, d_h = config.H, config.d, config.d_h
        inner = d_h if config.shared_projection else d
        self.factor = 1 / math.sqrt(d_h) if config.scale else 1.0
        self.query = nn.Parameter(torch.empty(H, d_h, inner))
        self.key = nn.Parameter(torch.empty(H, d_h, inner))
        self.value = nn.Parameter(torch.empty(H, d_h, inner))
        self.output = nn.Parameter(torch.empty(H, inner, d_h))
        self._initialise(d_h, inner)
        self.compress, self.decompress = (None, None) if config.one_projection else _projection(config)

    def _initialise(self, d_h: int, inner: int) -> None:
        """As torch's MultiheadAttention; without `scale` the initial queries carry it, so that scores start alike."""
        xavier = math.sqrt(6 / (inner + 3 * d_h))
        _uniform(self.query, xavier / (math.sqrt(d_h) * self.factor))
        _uniform(self.key, xavier)
        _uniform(self.value, xavier)
        _uniform(self.output, 1 / math.sqrt(d_h))

    def forward(self, stream: Tensor, shared: Shared, queries: int) -> Tensor:
        """Sum of the heads' outputs at each of the last `queries` positions: [batch, queries, d]."""
        read = self._read(stream, shared)  # [batch, S, inner]
        S = read.shape[1]
        scores = read[:, None] @ self._wanted(read[:, S - queries :])  # [batch, queries, S, H]
        if queries > 1:
            future = torch.ones(queries, S, dtype=torch.bool, device=scores.device).triu(S - queries + 1)
            scores = scores.masked_fill(future[:, :, None], -math.inf)
        mixed = read[:, None].mT @ scores.softmax(2)  # [batch, queries, inner, H]
        return _linear(mixed.flatten(2), self._written(shared).flatten(1))

    def at_pairs(self, stream: Tensor, shared: Shared) -> Tensor:
        """The same at the second of two positions, [batch, d], where the softmax is one sigmoid.

        Contexts are the last axis here: that makes long rows for the matrix products, and leaves
        whole vectors of them for everything else, which a compiler can join into a few loops.
        """
        first, last = self._read(stream, shared).permute(1, 2, 0)  # [inner, batch] each
        difference = (first - last).contiguous()[:, None]  # [inner, 1, batch]
        wanted = (self._pairs() @ last).reshape(len(last), len(self.query), last.shape[1])  # [inner, H, batch]
        weight = (difference * wanted).sum(0).sigmoid()  # [H, batch], of the first position
        mixed = (difference * weight).flatten(0, 1)  # [inner H, batch], beyond what is read at the second
        written = self._written(shared)
        update: Tensor = written.flatten(1) @ mixed + written.sum(2) @ last  # [d, batch]
        return update.mT

    def everywhere(self, stream: Tensor, shared: Shared) -> Tensor:
        """The same at the last position of every context, for a stream of each token at each position, [N, S, d].

        The result is [N, ..., N, d], with one axis for each position. A score depends on two tokens
        only, and all contexts that have the same token somewhere share what it makes heads write,
        so nothing is looked up.
        """
        read = self._read(stream, shared)  # [N, S, inner]
        N, S, H = *read.shape[:2], len(self.query)
        *grid, head, inner = range(S + 2)  # einsum's names of axes: the token at each position, then two more
        wanted = self._wanted(read[:, -1])  # [N, inner, H]
        scores = []
        for s in range(S):
            tokens = sorted({s, S - 1})  # the two that this score depends on, or the one
            score = torch.einsum(read[:, s], [s, inner], wanted, [S - 1, inner, head], [*tokens, head])
            scores.append(score.reshape([N if axis in tokens else 1 for axis in grid] + [H]).expand(*[N] * S, H))
        weights = torch.stack(scores).softmax(0)  # [S, N, ..., N, H]
        update = torch.einsum("nsi,dih->snhd", read, self._written(shared))
        parts = [torch.einsum(weights[s], [*grid, head], update[s], [s, head, inner], [*grid, inner]) for s in range(S)]
        return torch.stack(parts).sum(0)

    def _read(self, stream: Tensor, shared: Shared) -> Tensor:
        compress = self.compress if shared.compress is None else shared.compress
        read = stream if compress is None else _linear(stream, compress)
        return read if shared.position is None else read + shared.position

    def _wanted(self, read: Tensor) -> Tensor:
        """What each head looks for, [..., inner, H]: its product with what is read elsewhere is the score."""
        return _linear(read, self._pairs()).reshape(*read.shape, len(self.query))

    def _pairs(self) -> Tensor:
        """Keys and queries as one map from what is read to what is looked for elsewhere: [inner H, inner]."""
        pair = self.key.mT @ (self.query * self.factor)  # [H, inner, inner]
        return pair.transpose(0, 1).flatten(0, 1)

    def _written(self, shared: Shared) -> Tensor:
        """What the heads write to the stream, as a linear map of what they attended to: [d, inner, H]."""
        decompress = self.decompress if shared.decompress is None else shared.decompress
        output = self.output if decompress is None else decompress @ self.output  # [H, d, d_h]
        return (output @ self.value).permute(1, 2, 0)


def _projection(config: AttentionOnlyConfig) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """A compression [d_h, d] and a decompression [d, d_h], if heads share them and they are not square."""
    if not config.shared_projection or config.d_h == config.d:
        return None, None
    compress = nn.Parameter(torch.empty(config.d_h, config.d))
    decompress = nn.Parameter(torch.empty(config.d, config.d_h))
    _uniform(compress, 1 / math.sqrt(config.d))
    _uniform(decompress, 1 / math.sqrt(config.d_h))
    return compress, decompress


def _linear(vectors: Tensor, weight: Tensor) -> Tensor:
    """The linear map on a flat batch: with more axes, vmap over replicas would copy the weight for every vector."""
    return linear(vectors.flatten(0, -2), weight).reshape(*vectors.shape[:-1], len(weight))


def _uniform(weight: Tensor, bound: float) -> None:
    nn.init.uniform_(weight, -bound, bound)
