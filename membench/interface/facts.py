"""Facts: what a task asks a model to memorise, as plain arrays, so that looking at them needs no torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from membench.interface.declarations import Task

# Spawn keys of a trial's seed: the facts and the initial weights never share a random stream.
DATA_STREAM, WEIGHT_STREAM, BATCH_STREAM = 0, 1, 2


class Shape(NamedTuple):
    """All that an architecture may know of a task when it is built."""

    vocab: int  # N, tokens that a context is made of
    length: int  # S, tokens in a context
    answers: int  # A, what the model chooses among; often the tokens, but with numbers of their own


@dataclass(frozen=True, eq=False)
class Facts:
    """A conditional distribution over answers, on a support of distinct contexts.

    `targets` holds one label per context for an association (int64[T]), else one distribution
    per context (float64[T, A]). By default the answers are the tokens: A = N.
    """

    inputs: NDArray[np.int64]  # [T, S], distinct rows
    targets: NDArray[Any]  # int64[T] or float64[T, A]
    prior: NDArray[np.float64]  # [T], sums to 1
    vocab: int  # N
    answers: int = None  # type: ignore[assignment]  # A; never None once it is made

    def __post_init__(self) -> None:
        if self.answers is None:
            object.__setattr__(self, "answers", self.vocab)
        count = len(self.inputs)
        if self.inputs.ndim != 2 or count == 0 or self.inputs.dtype != np.int64:
            raise ValueError(
                f"inputs must be int64[T, S] with T >= 1, not {self.inputs.dtype}{list(self.inputs.shape)}"
            )
        if self.inputs.min() < 0 or self.inputs.max() >= self.vocab:
            raise ValueError(f"inputs must be tokens in 0..{self.vocab - 1}")
        if len(np.unique(self.inputs, axis=0)) != count:
            raise ValueError("inputs must be distinct contexts")
        if self.is_association:
            if self.targets.shape != (count,) or self.targets.min() < 0 or self.targets.max() >= self.answers:
                raise ValueError(f"labels must be one answer in 0..{self.answers - 1} for each of {count} contexts")
        elif self.targets.shape != (count, self.answers) or not _are_distributions(self.targets):
            raise ValueError(f"targets must be {count} distributions over {self.answers} answers")
        if self.prior.shape != (count,) or not _are_distributions(self.prior[None]):
            raise ValueError(f"the prior must be a distribution over {count} contexts")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def shape(self) -> Shape:
        return Shape(self.vocab, self.inputs.shape[1], self.answers)

    @property
    def is_association(self) -> bool:
        return self.targets.dtype == np.int64

    def distributions(self) -> NDArray[np.float64]:
        """The targets as float64[T, A], whichever way they are held."""
        if not self.is_association:
            return np.asarray(self.targets, dtype=np.float64)
        dense = np.zeros((len(self), self.answers))
        dense[np.arange(len(self)), self.targets] = 1.0
        return dense

    def entropies(self) -> NDArray[np.float64]:
        """Entropy of each context's distribution in nats, float64[T]."""
        if self.is_association:
            return np.zeros(len(self))
        targets = self.targets
        terms = np.where(targets > 0, targets * np.log(np.where(targets > 0, targets, 1.0)), 0.0)
        return np.asarray(-terms.sum(axis=1), dtype=np.float64)

    def bayes_accuracy(self) -> float:
        """The accuracy of the best possible model, which no model exceeds."""
        best = np.ones(len(self)) if self.is_association else self.targets.max(axis=1)
        return float(self.prior @ best) / float(self.prior @ np.ones(len(self)))  # so that certainty is exactly 1

    def sha256(self) -> str:
        """A digest of the content, the same on every platform."""
        header = f"{self.vocab} {self.inputs.shape} {self.targets.dtype.kind}"
        if self.answers != self.vocab:  # only then, so that facts keep the digests that older records have
            header += f" {self.answers}"
        digest = hashlib.sha256(header.encode())
        for array in (self.inputs, self.targets, self.prior):
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


def _are_distributions(rows: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(rows).all() and rows.min() >= 0 and np.abs(rows.sum(axis=1) - 1).max() < 1e-9)


def generator(seed: int, stream: int) -> np.random.Generator:
    """A random generator of one trial's own, for one purpose."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream,))))


def weight_seed(seed: int) -> int:
    """What the initial weights of a trial are drawn from; it tells nothing about the seed of the facts."""
    return int(generator(seed, WEIGHT_STREAM).integers(2**63))


def draw_facts(task: Task[Any], config: Any, seed: int) -> Facts:
    """The facts of one trial: a function of task, config and seed alone."""
    facts = task.sample(config, generator(seed, DATA_STREAM))
    expected = task.shape(config)
    if facts.shape != expected:
        raise ValueError(f"task '{task.name}' declared {expected} but sampled {facts.shape}")
    return facts
