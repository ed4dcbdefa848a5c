"""`facts`, version 1: subjects and relations, and for each relation answers of its own.

    g(s, r) uniform among the D answers of r, independent for each subject s and relation r

A context is a subject and a relation; T0 of them are drawn without replacement, all by default. By default the
relations have disjoint sets of D answers, A = relations * D. With fewer answers in all, each relation's D are drawn
from the A without replacement. It is the task of Nichani, Lee, Bietti, "Understanding Factual Recall in Transformers
via Associative Memories", 2024, arXiv:2412.06538.

With noise, a context is longer: subject and relation, in this order, stand at random places among `noise` tokens that
mean nothing, drawn from `noise_vocab` others, and a last token, always the same, ends it. Each fact is then asked in
`copies` contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, Names, Shape, Task, option
from membench_tasks.supports import all_contexts


@dataclass(frozen=True, kw_only=True)
class FactsConfig:
    subjects: int = option(32, help="number of subjects", minimum=1)
    relations: int = option(32, help="number of relations", minimum=1)
    D: int = option(8, help="answers D of each relation", minimum=2)
    A: int = option(None, help="answers A of all relations (auto: relations D, none of them shared)", minimum=2)
    T0: int = option(None, help="number of facts T0 (auto: all, subjects times relations)", minimum=1)
    noise: int = option(0, help="tokens in each context that mean nothing", minimum=0, maximum=64)
    noise_vocab: int = option(16, help="tokens that noise is drawn from", minimum=1)
    copies: int = option(1, help="contexts of each fact, which differ in their noise", minimum=1)

    def __post_init__(self) -> None:
        total = self.subjects * self.relations
        object.__setattr__(self, "A", self.relations * self.D if self.A is None else self.A)
        object.__setattr__(self, "T0", total if self.T0 is None else self.T0)
        if total < self.T0:
            raise ValueError(f"T0={self.T0} is more than the {total} pairs of a subject and a relation")
        if self.D > self.A:
            raise ValueError(f"D={self.D} is more than the A={self.A} answers of all relations")
        if self.subjects < self.D:
            raise ValueError(f"D={self.D} is more answers than a relation has facts (subjects={self.subjects})")
        if self.copies > 1 and self.copies > all_contexts(self.noise_vocab, self.noise):
            raise ValueError(
                f"copies={self.copies} is more than noise={self.noise} tokens out of noise_vocab={self.noise_vocab} "
                f"can tell apart ({all_contexts(self.noise_vocab, self.noise)})"
            )

    @property
    def vocab(self) -> int:
        """Subjects, relations and, where there is noise, its tokens and the end."""
        return self.subjects + self.relations + (self.noise_vocab + 1 if self.noise else 0)

    @property
    def length(self) -> int:
        return 2 + (self.noise + 1 if self.noise else 0)


def sample(config: FactsConfig, rng: np.random.Generator) -> Facts:
    subjects, relations = np.divmod(np.arange(config.subjects * config.relations, dtype=np.int64), config.relations)
    own = _answers_of_relations(config, rng)  # [relations, D]
    labels = own[relations, rng.integers(config.D, size=len(relations))]
    chosen = np.arange(len(relations))
    if len(chosen) > config.T0:
        chosen = np.sort(rng.choice(len(chosen), size=config.T0, replace=False, shuffle=False))
    pairs, labels = np.stack([subjects, config.subjects + relations], axis=1)[chosen], labels[chosen]
    if config.noise:
        pairs = np.concatenate([_with_noise(pair, config, rng) for pair in pairs])
        labels = np.repeat(labels, config.copies)
    return Facts(pairs, labels, np.full(len(pairs), 1 / len(pairs)), config.vocab, config.A)


def _answers_of_relations(config: FactsConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    if config.relations * config.D <= config.A:
        return np.arange(config.relations * config.D, dtype=np.int64).reshape(config.relations, config.D)
    return np.stack([rng.choice(config.A, size=config.D, replace=False) for _ in range(config.relations)])


def _with_noise(pair: NDArray[np.int64], config: FactsConfig, rng: np.random.Generator) -> NDArray[np.int64]:
    """Distinct contexts of one fact, int64[copies, length]."""
    first = config.subjects + config.relations
    made: dict[tuple[int, ...], None] = {}
    while len(made) < config.copies:
        context = rng.integers(first, first + config.noise_vocab, size=config.noise + 2)
        context[np.sort(rng.choice(len(context), size=2, replace=False))] = pair
        made[tuple(map(int, context))] = None
    return np.array([[*context, config.vocab - 1] for context in made], dtype=np.int64)


def names(config: FactsConfig) -> Names:
    tokens = [f"subject {i}" for i in range(config.subjects)] + [f"relation {i}" for i in range(config.relations)]
    if config.noise:
        tokens += [*(f"noise {i}" for i in range(config.noise_vocab)), "end"]
    return Names(tuple(tokens), tuple(f"answer {i}" for i in range(config.A)))


FACTS = Task(
    name="facts",
    version=1,
    summary="A random answer for each subject and relation, each relation with answers of its own.",
    config=FactsConfig,
    shape=lambda config: Shape(config.vocab, config.length, config.A),
    sample=sample,
    contexts=lambda config: config.T0 * config.copies,
    names=names,
)
