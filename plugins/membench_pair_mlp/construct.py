"""Closed-form weights of the pair MLP for two tokens: gates, and the selector, which is their simplest case.

The token of one position is the *gate*: it opens some of the neurons and shuts the others, by adding more to them, or
taking more away, than the token of the other position, the *holder*, could undo. What comes out of an open neuron is
linear in the holder's entries. So the answers to a holder's facts are linear equations in its own w - 1 entries, one
for each gate that it occurs with, and independent ones can be solved whatever the answers are. docs/theory.md has the
proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, NotApplicable
from membench.theory.certify import answers_of, certify
from membench_pair_mlp.patterns import open_patterns, positions, solvable

if TYPE_CHECKING:
    from torch import nn

    from membench_pair_mlp.model import PairMLP

Array = NDArray[np.float64]

SHARPNESS = 40.0  # difference of the logits of two neighbouring answers where all is exact
SPREAD = 0.02  # singular values below this part of the largest count as zero: weights would have to be huge


@dataclass(frozen=True)
class Half:
    """Some of the neurons: what each holder has in them, and which of them each gate opens."""

    held: Array  # [N, neurons]
    opened: Array  # [N, neurons]: the sign with which an open neuron counts, 0 where it is shut

    @property
    def signs(self) -> Array:
        return np.where(self.opened.sum(0) < 0, -1.0, 1.0)

    def entries(self) -> tuple[Array, Array]:
        """The rows of the holders' table and of the gates', [N, neurons] each.

        An open neuron must not be negative, so a gate adds what the least of the holders' entries lacks. What that adds
        to the sum over all open neurons is taken out again by adding as much to those of the other sign.
        """
        is_open = self.opened != 0
        lift = np.where(is_open, np.maximum(-self.held.min(0), 0.0), 0.0)
        surplus = (lift * self.opened).sum(1, keepdims=True)
        lacking = is_open & (self.opened * surplus < 0)
        lift += np.abs(surplus) * lacking / np.maximum(lacking.sum(1, keepdims=True), 1)
        return self.held, np.where(is_open, lift, -np.maximum(self.held.max(0), 0.0))


def selector(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """One neuron for each gate, which lets the holder's answer through: all N^2 facts with N + 1 neurons."""
    model = _plain(module, facts)
    w, gates = model.config.w, np.unique(facts.inputs[:, 1])
    if len(gates) > w - 1:
        raise NotApplicable(f"w={w}, and a selector of {len(gates)} tokens needs w >= {len(gates) + 1}")
    held, opened = np.zeros((facts.vocab, w - 1)), np.zeros((facts.vocab, w - 1))
    opened[gates, np.arange(len(gates))] = 1.0
    held[facts.inputs[:, 0], np.searchsorted(gates, facts.inputs[:, 1])] = answers_of(facts)
    empty = Half(np.zeros((facts.vocab, 0)), np.zeros((facts.vocab, 0)))
    _fill(model, Half(held, opened), empty, holder=0, codes=np.arange(facts.answers, dtype=np.float64))
    return {"method": "selector", **certify(module, facts, np.arange(len(facts)))}


def gates(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """Linear equations for each holder; where one has too many facts, some neurons have the roles exchanged."""
    model = _plain(module, facts)
    neurons = model.config.w - 1
    if len(np.unique(facts.inputs[:, 1])) <= neurons:
        return selector(module, facts)
    solved, everything = None, np.arange(len(facts))
    for exchanged in _exchanges(facts, neurons):
        if (solved := _solve(facts, neurons, exchanged, everything, SPREAD)) is not None:
            break
    chosen = everything
    if solved is None:
        chosen = solvable(facts, neurons)
        solved = _solve(facts, neurons, 0, chosen, 0.0)
    if solved is None:
        raise NotApplicable(f"the weights for w={model.config.w} are too large to be exact; other w can be constructed")
    own, other, holder = solved
    _fill(model, own, other, holder=holder, codes=np.arange(facts.answers, dtype=np.float64) - (facts.answers - 1) / 2)
    return {"method": "gates", "exchanged": other.held.shape[1], **certify(module, facts, chosen)}


def _exchanges(facts: Facts, neurons: int) -> Iterator[int]:
    """How many neurons to try with exchanged roles: none, then as many as could have room for the surplus facts, ..

    One alone is left out: it could not have both signs.
    """
    counts = np.bincount(facts.inputs[:, positions(facts, neurons)[0]], minlength=facts.vocab)
    for exchanged in (0, *range(2, neurons // 4 + 1)):
        own = neurons - exchanged
        if np.maximum(counts - own, 0).sum() <= exchanged * (facts.vocab - own):
            yield exchanged


def _plain(module: nn.Module, facts: Facts) -> PairMLP:
    model = cast("PairMLP", module)
    if facts.inputs.shape[1] != 2:
        raise NotApplicable(f"contexts have S={facts.inputs.shape[1]} tokens, and the construction is for pairs")
    if not model.config.is_plain:
        raise NotApplicable("only the plain model can be constructed: ReLU neurons that add, and none of the extras")
    if model.config.w < 2:
        raise NotApplicable("w=1, and one neuron is needed for the constant; w >= 2")
    return model


def _solve(
    facts: Facts, neurons: int, exchanged: int, chosen: NDArray[np.int64], spread: float
) -> tuple[Half, Half, int] | None:
    """Both halves for the chosen facts, and the position of the holders; None if they cannot all be held.

    What a holder's own entries cannot solve is left to the neurons with `exchanged` roles, in one system of equations.
    """
    holder, gate = positions(facts, neurons)
    holders, gates = facts.inputs[chosen, holder], facts.inputs[chosen, gate]
    targets = answers_of(facts)[chosen] - (facts.answers - 1) / 2
    opened = open_patterns(facts.vocab, neurons - exchanged)
    other_opened = open_patterns(facts.vocab, exchanged)
    groups = (np.flatnonzero(holders == token) for token in range(facts.vocab))
    systems = [_System.of(group, opened[gates[group]], spread) for group in groups]
    surplus = [(token, row) for token, system in enumerate(systems) for row in system.unsolved]
    other_held = np.zeros((facts.vocab, exchanged))
    if surplus:
        equations = np.zeros((len(surplus), facts.vocab, exchanged))
        for equation, (token, row) in zip(equations, surplus, strict=True):
            equation[gates[systems[token].facts]] = np.outer(row, other_opened[token])
        wanted = np.array([row @ targets[systems[token].facts] for token, row in surplus])
        flat = equations.reshape(len(surplus), -1)
        solution = np.linalg.lstsq(flat, wanted, rcond=1e-9)[0]
        if not exchanged or np.abs(flat @ solution - wanted).max() > 1e-3:
            return None  # they contradict each other
        other_held = solution.reshape(facts.vocab, exchanged)
    held = np.array(
        [
            system.solution(targets[system.facts] - other_held[gates[system.facts]] @ other_opened[token])
            for token, system in enumerate(systems)
        ]
    )
    # Half a code is the most that the sum may be off in float32: w entries, rounded, times the largest code.
    if max(np.abs(held).max(), np.abs(other_held).max(initial=0.0)) > 2**24 / (facts.answers * np.sqrt(neurons)):
        return None
    return Half(held, opened), Half(other_held, other_opened), holder


@dataclass(frozen=True)
class _System:
    """The equations of one holder: its facts, what solves them, and the combinations of them that nothing solves."""

    facts: NDArray[np.int64]
    inverse: Array  # [neurons, facts]
    unsolved: Array  # [combinations, facts]

    @classmethod
    def of(cls, facts: NDArray[np.int64], patterns: Array, spread: float) -> _System:
        left, values, right = np.linalg.svd(patterns)
        rank = int((values > max(spread, 1e-9) * values[0]).sum()) if len(facts) else 0
        return cls(facts, (right[:rank].T / values[:rank]) @ left[:, :rank].T, left[:, rank:].T)

    def solution(self, targets: Array) -> Array:
        return np.asarray(self.inverse @ targets)


def _fill(model: PairMLP, own: Half, exchanged: Half, *, holder: int, codes: Array) -> None:
    """Write the tables, and an unembedding whose largest logit is that of the code next to the signed sum.

    That is 2 code sum - code^2, a line in the sum for each answer; the square is the weight of the last neuron, which
    is always 1.
    """
    import torch

    (held, lift), (other_held, other_lift) = own.entries(), exchanged.entries()
    ones, zeros = np.ones((len(held), 1)), np.zeros((len(held), 1))
    tables = np.hstack([held, other_lift, ones]), np.hstack([lift, other_held, zeros])
    signs = np.concatenate([own.signs, exchanged.signs])
    unembed = np.hstack([2 * codes[:, None] * signs, -(codes**2)[:, None]])
    with torch.no_grad():
        for table, rows in zip(model.tables, tables if holder == 0 else tables[::-1], strict=True):
            weight = table.get_parameter("weight")
            weight.zero_()
            weight[:, : rows.shape[1]] = torch.from_numpy(rows)
        model.unembed.weight.zero_()
        model.unembed.weight[:, : unembed.shape[1]] = SHARPNESS * torch.from_numpy(unembed)
