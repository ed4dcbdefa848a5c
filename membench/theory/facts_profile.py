"""What bounds ask of facts, worked out once for each of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from membench.errors import NotApplicable
from membench.interface.facts import Facts

P = ParamSpec("P")
R = TypeVar("R")

Array = NDArray[np.float64]


def per_facts(function: Callable[Concatenate[Facts, P], R]) -> Callable[Concatenate[Facts, P], R]:
    """Remember results for as long as the facts live. Facts are immutable; arguments must be hashable."""
    known: WeakKeyDictionary[Facts, dict[Any, R]] = WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(facts: Facts, *args: P.args, **kwargs: P.kwargs) -> R:
        results = known.setdefault(facts, {})
        key = (args, tuple(sorted(kwargs.items())))
        if key not in results:
            results[key] = function(facts, *args, **kwargs)
        return results[key]

    return remembered  # type: ignore[return-value]  # mypy keeps the name of the first argument


@dataclass(frozen=True, eq=False)
class Profile:
    """The distinct distributions of some facts, and how likely each is to be asked for.

    The best divergence depends on nothing else: contexts with the same distribution can share all.
    """

    rows: Array  # [R, A]
    mass: Array  # [R]
    row_of: NDArray[np.int64]  # [T], which row each context has

    @functools.cached_property
    def entropies(self) -> Array:
        """In nats, float64[R]."""
        logs = np.log(np.where(self.rows > 0, self.rows, 1.0))
        return np.asarray(-(self.rows * logs).sum(axis=1), dtype=np.float64)

    @functools.cached_property
    def labels(self) -> NDArray[np.int64]:
        """The most likely answer of each row, int64[R]."""
        return np.asarray(self.rows.argmax(axis=1), dtype=np.int64)

    @property
    def answers(self) -> int:
        return int(self.rows.shape[1])

    @property
    def entropy(self) -> float:
        return float(self.mass @ self.entropies)

    def centred_logs(self) -> Array:
        """Log-probabilities minus their mean over answers, float64[R, A]. Raises NotApplicable without full support."""
        if self.rows.min() <= 0:
            raise NotApplicable("some answer has probability zero, and full support is needed")
        logs = np.log(self.rows)
        return np.asarray(logs - logs.mean(axis=1, keepdims=True), dtype=np.float64)


@per_facts
def profile(facts: Facts) -> Profile:
    if facts.is_association:
        labels, row_of = np.unique(facts.targets, return_inverse=True)
        rows = np.eye(facts.answers)[labels]
    else:
        row_of, first = _group(facts.targets)
        rows = np.asarray(facts.targets[first], dtype=np.float64)
    mass = np.asarray(np.bincount(row_of, weights=facts.prior), dtype=np.float64)
    return Profile(rows, mass, np.asarray(row_of, dtype=np.int64))


def _group(rows: NDArray[Any]) -> tuple[NDArray[np.int64], list[int]]:
    """For each row the number of its group of equal rows, and the first row of each group."""
    groups: dict[bytes, int] = {}
    first: list[int] = []
    numbers = np.empty(len(rows), dtype=np.int64)
    for index, row in enumerate(np.ascontiguousarray(rows)):
        number = groups.setdefault(row.tobytes(), len(groups))
        if number == len(first):
            first.append(index)
        numbers[index] = number
    return numbers, first


@per_facts
def spectrum(facts: Facts, weighted: bool) -> Array:
    """Singular values of the centred log-probabilities of the distinct rows, rows weighted by sqrt(mass) or not."""
    found = profile(facts)
    logs = found.centred_logs()
    return np.asarray(np.linalg.svd(logs * np.sqrt(found.mass)[:, None] if weighted else logs, compute_uv=False))


@per_facts
def marginal(facts: Facts) -> Array:
    """The probability of each answer, whatever the context, float64[A]."""
    if facts.is_association:
        return np.asarray(np.bincount(facts.targets, facts.prior, facts.answers), dtype=np.float64)
    return np.asarray(facts.prior @ facts.targets, dtype=np.float64)


@per_facts
def joint_with_last(facts: Facts) -> Array:
    """The joint probability of last token and answer, float64[N, A]."""
    joint = np.zeros((facts.vocab, facts.answers))
    if facts.is_association:
        np.add.at(joint, (facts.inputs[:, -1], facts.targets), facts.prior)
    else:
        np.add.at(joint, facts.inputs[:, -1], facts.prior[:, None] * facts.targets)
    return joint


def entropy_of(masses: Array) -> float:
    """Entropy of one distribution, in nats."""
    positive = masses[masses > 0]
    return -float(positive @ np.log(positive))


def uniform_divergence(facts: Facts) -> float:
    """KL of zero logits: log A minus the mean entropy."""
    return math.log(facts.answers) - profile(facts).entropy
