"""Weights of the attention-only transformer in closed form: the theorems, carried out.

All of them freeze random attention and solve for what reads it. The features of a context are

    z(t) = (x'_S, V'^1 xbar'^1(t), ..., V'^H xbar'^H(t))        with x'_s = e'[t_s] + pos'_s

and a readout M = (B, W_O) of them becomes the model itself by a change of basis: with e = e' B^T, pos = pos' B^T and
W_{Q,K,V} = W'_{Q,K,V} B^-1 the heads see what they saw, the skip connection carries B x'_S, and the stream is M z.

Random numbers are drawn from a generator seeded by the facts' digest: the same facts give the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, NotApplicable
from membench.theory.attention_rank import Features, likeliest_first, memorisable, memorisable_count
from membench.theory.certify import answers_of, certify, certify_divergence
from membench.theory.facts_profile import profile
from membench.theory.floor import best_encoder
from membench.theory.frames import best_frame, circle, margin
from membench.theory.readout import Array, Spectrum, fit_readout, independent_rows, lead, solve_readout, spectrum_of

if TYPE_CHECKING:
    from torch import nn

DRAWS = 3  # of attention with independent features, of which the best-conditioned is used
REDRAWS = 5  # of attention whose features turn out dependent, at most
SINGULAR = 1e-11  # ratio of singular values below which features count as dependent
_SAFE = 1e-8  # the same ratio for what is kept when no draw is good enough
_STEEP = 1e9  # condition of the change of basis beyond which the outputs are moved a little
_UNDONE = 1e-6  # error that the inverse of a change of basis may leave
_GROWTH = 1.08  # of the number of contexts while the convex readout still succeeds
_ATTEMPTS = 6


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a formal model, read off its weights."""

    N: int
    S: int
    A: int
    d: int
    d_h: int
    H: int
    factor: float  # that scores are multiplied with


@dataclass(frozen=True, eq=False)
class Attention:
    """Random frozen weights, in the basis in which they were drawn."""

    word: Array  # [N, d]
    position: Array  # [S, d]
    query: Array  # [H, d_h, d]
    key: Array  # [H, d_h, d]
    value: Array  # [H, d_h, d]

    @classmethod
    def draw(cls, N: int, S: int, d: int, d_h: int, H: int, rng: np.random.Generator) -> Attention:
        """Scores of the order of one: sharper attention loses rank, flatter attention loses condition."""
        word, position = (rng.standard_normal((rows, d)) / np.sqrt(d) for rows in (N, S))
        query, key = (rng.standard_normal((H, d_h, d)) for _ in range(2))
        return cls(word, position, query, key, rng.standard_normal((H, d_h, d)) / np.sqrt(d))

    def stream(self, inputs: NDArray[np.int64]) -> Array:
        return np.asarray(self.word[inputs] + self.position)  # [T, S, d]

    def heads(self, inputs: NDArray[np.int64]) -> Array:
        """What the heads' values average to: [T, H d_h]."""
        stream = self.stream(inputs)
        queries = np.einsum("td,hed->the", stream[:, -1], self.query)
        scores = np.einsum("the,hed,tsd->ths", queries, self.key, stream, optimize=True)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        mixed = np.einsum("ths,tsd->thd", weights, stream)
        return np.asarray(np.einsum("thd,hed->the", mixed, self.value).reshape(len(inputs), -1))


@dataclass(frozen=True, eq=False)
class Draw:
    """Attention whose features of the wanted contexts are independent, or the best that was drawn."""

    attention: Attention
    Z: Array  # [T, m]
    spectrum: Spectrum
    redraws: int = 0  # draws that were rejected
    left_out: int = 0  # contexts that theory tells apart and float64 does not

    def restricted(self, rows: NDArray[np.int64]) -> Draw:
        """The same for some of the contexts."""
        fewer = self.Z[rows]
        return replace(self, Z=fewer, spectrum=spectrum_of(fewer, SINGULAR), left_out=len(self.Z) - len(rows))


def theorem_1(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """One linear system: as many contexts as the features have dimensions, H d_h + d where nothing degenerates."""
    sizes = dimensions_of(module)
    _require_a_plane(sizes)
    rng = _generator(facts)
    chosen, drawn = _draw_for(facts, sizes, Features(sizes.d, sizes.d_h, sizes.H), rng)
    frame = best_frame(sizes.A, sizes.d)
    M = _solve(drawn, frame[answers_of(facts)[chosen]], margin(frame), rng)
    _load_readout(module, sizes, drawn.attention, M, frame, rng)
    return _report("theorem-1", module, facts, chosen, drawn)


def embedding_assisted(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """Two dimensions hold a free table over the last token: N_last + H min(d_h, d-2) contexts."""
    sizes = dimensions_of(module)
    if sizes.d < 3:
        raise NotApplicable(f"d={sizes.d}, and d >= 3 is needed: two dimensions for the answer and some for features")
    rng = _generator(facts)
    chosen, drawn = _draw_for(facts, sizes, Features(sizes.d - 2, sizes.d_h, sizes.H, table=True), rng)
    theta = solve_readout(drawn.Z, circle(sizes.A)[answers_of(facts)[chosen]], drawn.spectrum)  # [2, N + H d_h]
    _load_plane(module, sizes, drawn.attention, theta)
    return _report("embedding-assisted", module, facts, chosen, drawn)


def convex_readout(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """Softmax regression on the frozen features, for the largest set of contexts on which it makes no mistake.

    The likeliest contexts are taken first; how many is found by trying, and a linear system is the way out.
    """
    sizes = dimensions_of(module)
    _require_a_plane(sizes)
    rng = _generator(facts)
    order = likeliest_first(facts, rng)
    attention = Attention.draw(sizes.N, sizes.S, sizes.d, sizes.d_h, sizes.H, rng)
    search = _ConvexSearch(attention, facts, order, np.array(best_frame(sizes.A, sizes.d)))
    found = search.run(sizes.d + sizes.H * sizes.d_h)
    if found is None:
        return {**theorem_1(module, facts), "attempts": search.attempts}
    chosen, M, drawn = found
    _load_readout(module, sizes, attention, _invertible(M, drawn, sizes.d, rng), search.frame, rng)
    return {**_report("convex-readout", module, facts, chosen, drawn), "attempts": search.attempts}


def distribution(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """The best sequence encoder that can be found, reproduced exactly while the features have the rank for it.

    Beyond that the readout of least divergence, with the encoder's unembedding.
    """
    sizes = dimensions_of(module)
    if facts.is_association:
        raise NotApplicable("labels have no best divergence to reproduce, only a limit; theorem-1 memorises them")
    rng = _generator(facts)
    encoder = best_encoder(facts, sizes.d)
    outputs = encoder.E[profile(facts).row_of]
    features = Features(sizes.d, sizes.d_h, sizes.H)
    drawn = _draw(sizes, features, facts.inputs, memorisable_count(facts, features), rng)
    exact = drawn.spectrum.rank == len(facts)
    M = _solve(drawn, outputs, 0.0, rng)
    if not exact:
        M = fit_readout(encoder.W, drawn.spectrum, facts.distributions(), facts.prior, M)
        M = _invertible(M, drawn, sizes.d, rng)
    _load_readout(module, sizes, drawn.attention, M, encoder.W, rng)
    report = _report("distribution", module, facts, np.arange(len(facts)), drawn)
    return {**report, **certify_divergence(module, facts), "floor": encoder.divergence, "exact": exact}


def dimensions_of(module: nn.Module) -> Dimensions:
    """The sizes of the module, if it is the formal model of one layer; NotApplicable otherwise."""
    layers = module.get_submodule("layers")
    if len(list(layers.children())) != 1:
        raise NotApplicable(f"layers={len(list(layers.children()))}, and the construction is for one layer")
    N, d = module.get_parameter("word.weight").shape
    H, d_h, inner = module.get_parameter("layers.0.query").shape
    if inner != d or getattr(module.get_submodule("layers.0"), "compress", None) is not None:
        raise NotApplicable("shared_projection=true, and the construction needs heads with projections of their own")
    if not getattr(module, "skip_position", True):
        raise NotApplicable("skip_position=false, and the construction needs the position in the residual stream")
    factor = float(getattr(module.get_submodule("layers.0"), "factor", 1.0))
    S, A = (len(module.get_parameter(f"{table}.weight")) for table in ("position", "unembed"))
    return Dimensions(N, S, A, d, d_h, H, factor)


class _ConvexSearch:
    """How many of the first contexts of an order a convex readout memorises."""

    def __init__(self, attention: Attention, facts: Facts, order: NDArray[np.int64], frame: Array) -> None:
        self.attention, self.facts, self.order, self.frame = attention, facts, order, frame
        self.labels, self.attempts = answers_of(facts), 0

    def run(self, columns: int) -> tuple[NDArray[np.int64], Array, Draw] | None:
        """Grow from a guess while it works, or fall back between it and the number of columns; None if nothing works.

        The guess is a little below what was measured for A = N = 50 and d from 2 to 20.
        """
        best: tuple[NDArray[np.int64], Array, Draw] | None = None
        total, dimension = len(self.facts), self.frame.shape[1]
        low, high = min(total, columns) - 1, total + 1
        count = min(total, int(columns * max(1.25, 0.26 * dimension)))
        while self.attempts < _ATTEMPTS and low < count < high:
            found = self._try(count)
            best, low, high = (best, low, count) if found is None else (found, count, high)
            count = min(total, math.ceil(_GROWTH * low)) if high > total else (low + high) // 2
        return best

    def _try(self, count: int) -> tuple[NDArray[np.int64], Array, Draw] | None:
        self.attempts += 1
        chosen = self.order[:count]
        drawn = _features(self.attention, self.facts.inputs[chosen], table=False)
        targets = np.eye(len(self.frame))[self.labels[chosen]]
        M = fit_readout(self.frame, drawn.spectrum, targets, np.full(count, 1 / count))
        right = lead(drawn.Z @ M.T @ self.frame.T, self.labels[chosen]).min() > 0
        return (chosen, M, drawn) if right else None


def _generator(facts: Facts) -> np.random.Generator:
    return np.random.default_rng(int(facts.sha256()[:16], 16))


def _require_a_plane(sizes: Dimensions) -> None:
    if sizes.d == 1 and sizes.A > 2:
        raise NotApplicable("d=1, and then only two answers can ever be given; d >= 2 is needed")


def _draw_for(
    facts: Facts, sizes: Dimensions, features: Features, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Draw]:
    """The contexts to memorise, and attention that tells them apart.

    Contexts that are independent in theory but not in float64 are left out, the most dependent first.
    """
    chosen = np.array(memorisable(facts, features), dtype=np.int64)
    drawn = _draw(sizes, features, facts.inputs[chosen], len(chosen), rng)
    if drawn.spectrum.rank == len(chosen):
        return chosen, drawn
    kept = independent_rows(drawn.Z, _SAFE)
    return chosen[kept], drawn.restricted(kept)


def _draw(
    sizes: Dimensions, features: Features, inputs: NDArray[np.int64], rank: int, rng: np.random.Generator
) -> Draw:
    """The best-conditioned of a few draws whose features have the rank; the best of all when none has."""
    found: list[Draw] = []
    rejected = 0
    while len(found) - rejected < DRAWS and rejected <= REDRAWS:
        attention = Attention.draw(sizes.N, sizes.S, features.d, sizes.d_h, sizes.H, rng)
        found.append(_features(attention, inputs, features.table))
        rejected += found[-1].spectrum.rank < rank
    best = max(found, key=lambda one: (one.spectrum.rank, one.spectrum.values[-1] / one.spectrum.values[0]))
    return replace(best, redraws=rejected)


def _features(attention: Attention, inputs: NDArray[np.int64], table: bool) -> Draw:
    first = np.eye(len(attention.word))[inputs[:, -1]] if table else attention.stream(inputs)[:, -1]
    Z = np.concatenate([first, attention.heads(inputs)], axis=1)
    return Draw(attention, Z, spectrum_of(Z, SINGULAR))


def _solve(drawn: Draw, outputs: Array, slack: float, rng: np.random.Generator) -> Array:
    """A readout that gives these outputs and whose part B can be inverted.

    Outputs that span too few directions, such as those of a single label, make B singular: then they are moved by a
    part of the slack that the answers have.
    """
    d = outputs.shape[1]
    M = _invertible(solve_readout(drawn.Z, outputs, drawn.spectrum), drawn, d, rng)
    if slack and np.linalg.cond(M[:, :d]) > _STEEP:
        moved = rng.standard_normal(outputs.shape)
        moved *= slack / 8 / np.linalg.norm(moved, axis=1, keepdims=True)
        M = _invertible(solve_readout(drawn.Z, outputs + moved, drawn.spectrum), drawn, d, rng)
    return M


def _invertible(M: Array, drawn: Draw, d: int, rng: np.random.Generator) -> Array:
    """The same readout of the same features, with random numbers where the features leave it open."""
    V = drawn.spectrum.V
    free = rng.standard_normal(M.shape) * max(np.linalg.norm(M) / np.sqrt(M.size), 1e-3)
    return np.asarray(M + free - (free @ V) @ V.T)


def _with_the_unread(M: Array, W_U: Array, rng: np.random.Generator) -> Array:
    """The same probabilities from a readout whose part B can be inverted, where the unembedding leaves it open.

    In A or more dimensions there are some that no probability depends on; a readout is zero there, and B singular.
    """
    if _can_be_undone(M[:, : len(M)]):
        return M
    seen = W_U - W_U.mean(axis=0)  # what is added to all logits changes no probability
    free = rng.standard_normal(M.shape) * max(np.linalg.norm(M) / np.sqrt(M.size), 1e-3)
    return np.asarray(M + free - np.linalg.pinv(seen, rcond=1e-10) @ (seen @ free))


def _can_be_undone(B: Array) -> bool:
    """Whether heads see what they saw after the change of basis, in float64."""
    try:
        return bool(np.abs(np.linalg.inv(B) @ B - np.eye(len(B))).max() < _UNDONE)
    except np.linalg.LinAlgError:
        return False


def _load_readout(
    module: nn.Module, sizes: Dimensions, attention: Attention, M: Array, W_U: Array, rng: np.random.Generator
) -> None:
    """The model whose logits are W_U M z: the change of basis."""
    M = _with_the_unread(M, W_U, rng)
    B, W_O = M[:, : sizes.d], M[:, sizes.d :]
    inverse = np.linalg.inv(B)
    _load(
        module,
        {
            "word.weight": attention.word @ B.T,
            "position.weight": attention.position @ B.T,
            "layers.0.query": attention.query @ inverse / sizes.factor,
            "layers.0.key": attention.key @ inverse,
            "layers.0.value": attention.value @ inverse,
            "layers.0.output": _by_head(W_O, sizes),
            "unembed.weight": W_U,
        },
    )


def _load_plane(module: nn.Module, sizes: Dimensions, attention: Attention, theta: Array) -> None:
    """The model whose first d-2 dimensions are features and whose last two are the answer's plane."""
    word = np.concatenate([attention.word, theta[:, : sizes.N].T], axis=1)
    output = np.zeros((sizes.H, sizes.d, sizes.d_h))
    output[:, -2:] = _by_head(theta[:, sizes.N :], sizes)
    plane = ((0, 0), (0, 0), (0, 2))  # heads do not look at the plane
    _load(
        module,
        {
            "word.weight": word,
            "position.weight": np.pad(attention.position, plane[1:]),
            "layers.0.query": np.pad(attention.query / sizes.factor, plane),
            "layers.0.key": np.pad(attention.key, plane),
            "layers.0.value": np.pad(attention.value, plane),
            "layers.0.output": output,
            "unembed.weight": np.pad(circle(sizes.A), ((0, 0), (sizes.d - 2, 0))),
        },
    )


def _by_head(readout: Array, sizes: Dimensions) -> Array:
    """[rows, H d_h] as [H, rows, d_h]."""
    return readout.reshape(len(readout), sizes.H, sizes.d_h).transpose(1, 0, 2)


def _load(module: nn.Module, weights: Mapping[str, Array]) -> None:
    import torch

    with torch.no_grad():
        for name, weight in weights.items():
            module.get_parameter(name).copy_(torch.from_numpy(np.array(weight)))


def _report(method: str, module: nn.Module, facts: Facts, chosen: NDArray[np.int64], drawn: Draw) -> dict[str, Any]:
    return {
        "method": method,
        "contexts": len(facts),
        **certify(module, facts, chosen),
        "rank": drawn.spectrum.rank,
        "condition": drawn.spectrum.condition,
        "redraws": drawn.redraws,
        "left_out": drawn.left_out,  # by ill conditioning, after all redraws
    }
