"""How many contexts one layer of attention tells apart, exactly.

The layer with frozen, generic weights turns a context t into the features

    z(t) = (x_S, V^1 xbar^1(t), ..., V^H xbar^H(t)),     xbar^h(t) = sum_s a^h_s(t) x_s,     x_s = e[t_s] + pos_s

and a linear readout of z can give any outputs to contexts whose features are independent. The exponentials in the
attention weights a^h_s(t) are algebraically independent functions of the weights (docs/theory.md has the proof): for
the generic rank they may be replaced by indeterminates,

    a^h_s(t) = alpha^h[t_S, t_s] beta^h[t_S, s] / sum_s' alpha^h[t_S, t_s'] beta^h[t_S, s']

and the rank at random values of them modulo a prime is a proven lower bound. It falls short with a probability of less
than one in a thousand, and is drawn again when it could be larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from membench.interface.facts import Facts
from membench.theory import modular
from membench.theory.facts_profile import per_facts


@dataclass(frozen=True)
class Features:
    """One layer's features: H heads of dimension d_h that read a stream of dimension d, and a first part.

    The first part is the stream at the last position, or with `table` one indicator for each last
    token, as when the embedding's rows are free to be solved for.
    """

    d: int
    d_h: int
    H: int
    table: bool = False

    def most(self, inputs: NDArray[np.int64]) -> int:
        """The rank that the numbers of tokens, positions and dimensions allow for these contexts."""
        last = len(np.unique(inputs[:, -1]))
        spread = len(np.unique(inputs)) + inputs.shape[1] - 2  # of the differences x_s - x_S
        first = last if self.table else min(self.d, last)
        return min(len(inputs), int(first + self.H * min(self.d_h, self.d, spread)))


@per_facts
def memorisable_count(facts: Facts, features: Features) -> int:
    """The number of contexts of these facts that generic features make independent: a proven lower bound.

    For all N^2 bigrams there is a closed form, min(N^2, min(d, N) + H min(d_h, d, N)), with N for min(d, N) if the
    first part is a table.
    """
    N, S = facts.vocab, facts.shape.length
    if S == 2 and len(facts) == N * N:
        first = N if features.table else min(features.d, N)
        return min(N * N, first + features.H * min(features.d_h, features.d, N))
    return len(memorisable(facts, features))


@per_facts
def memorisable_mass(facts: Facts, features: Features) -> float:
    """The probability of a right answer when exactly the memorisable contexts are answered as well as can be."""
    worth = answer_mass(facts)
    if worth.max() - worth.min() <= 1e-12 * worth.max():
        return float(worth.mean()) * memorisable_count(facts, features)
    return float(worth[list(memorisable(facts, features))].sum())


def answer_mass(facts: Facts) -> NDArray[np.float64]:
    """What the best answer to each context adds to the accuracy, float64[T]."""
    return facts.prior if facts.is_association else np.asarray(facts.prior * facts.targets.max(axis=1))


@per_facts
def memorisable(facts: Facts, features: Features) -> tuple[int, ...]:
    """Contexts that generic features make independent, of the greatest probability of a right answer.

    Independent sets of rows are a matroid, so taking the likeliest contexts first is optimal.
    """
    rng = np.random.default_rng(0)
    most = features.most(facts.inputs)
    ordered = likeliest_first(facts, rng)
    few = replace(features, H=min(features.H, most // min(features.d_h, features.d) + 1))
    # A head that adds nothing is followed by none that does, so no more heads than contexts matter.
    many = replace(features, H=min(features.H, len(facts)))
    best: list[int] = []
    for used, count in ((few, 1), (many, 8), (many, 8)):  # few heads and rows are enough for most supports
        rows = _evaluate(facts.inputs[ordered[: count * most + 32]], facts.vocab, used, rng)
        best = max(best, modular.row_basis(rows, most), key=len)
        if len(best) == most:
            break
    return tuple(int(ordered[index]) for index in best)


def likeliest_first(facts: Facts, rng: np.random.Generator) -> NDArray[np.int64]:
    """The contexts in the order of what their answers are worth; equal ones at random, which spreads them out."""
    shuffled = rng.permutation(len(facts))
    return np.asarray(shuffled[np.argsort(-answer_mass(facts)[shuffled], kind="stable")], dtype=np.int64)


def _evaluate(inputs: NDArray[np.int64], N: int, features: Features, rng: np.random.Generator) -> modular.Matrix:
    """The features of these contexts at a random point of the field: [T, columns]."""
    S, d, H = inputs.shape[1], features.d, features.H
    stream = modular.residues(modular.draw(rng, N, d)[inputs] + modular.draw(rng, S, d))  # [T, S, d]
    last = np.unique(inputs[:, -1], return_inverse=True)[1]
    first = np.eye(last.max() + 1)[last] if features.table else stream[:, -1]
    weights = _attention(inputs, d == 1, H, rng)  # [T, S, H]
    heads = modular.residues(np.einsum("tsh,tsd->htd", weights, stream))  # [H, T, d]
    values = [modular.product(head, modular.draw(rng, d, features.d_h)) for head in heads]
    return np.concatenate([first, *values], axis=1)


def _attention(inputs: NDArray[np.int64], scalar: bool, H: int, rng: np.random.Generator) -> modular.Matrix:
    """Weights that sum to one over the positions, [T, S, H]; drawn again where the sum vanishes."""
    while True:
        raw = _exponentials(inputs, scalar, H, rng)
        totals = modular.residues(raw.sum(axis=1, keepdims=True))
        if totals.all():
            return modular.residues(raw * modular.inverses(totals))


def _exponentials(inputs: NDArray[np.int64], scalar: bool, H: int, rng: np.random.Generator) -> modular.Matrix:
    """What stands for exp(score), [T, S, H]: a factor for (last token, token) times one for (last token, position)."""
    S = inputs.shape[1]
    tokens, flat = np.unique(inputs, return_inverse=True)
    dense = flat.reshape(inputs.shape)  # tokens numbered by those in use
    last = dense[:, -1:]
    if not scalar:
        pairs = np.unique(last * len(tokens) + dense, return_inverse=True)[1].reshape(inputs.shape)
        alpha = modular.draw(rng, pairs.max() + 1, H)[pairs]
        return modular.residues(alpha * modular.draw(rng, len(tokens), S, H)[last[:, 0]])
    # In one dimension exp(k e_b e_a) is symmetric in the tokens, and exp(k pos_S e_a) is exp(k e_a pos_S).
    low, high = np.minimum(last, dense), np.maximum(last, dense)
    pairs = np.unique(low * len(tokens) + high, return_inverse=True)[1].reshape(inputs.shape)
    beta, offset = modular.draw(rng, len(tokens), S, H), modular.draw(rng, S, H)
    alpha = modular.residues(modular.draw(rng, pairs.max() + 1, H)[pairs] * beta[dense, S - 1])
    return modular.residues(alpha * modular.residues(beta[last[:, 0]] * offset))
