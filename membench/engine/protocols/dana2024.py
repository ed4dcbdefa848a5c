"""The protocol `dana2024`: the training of Dana, Pydi and Chevaleyre (2024), as their code carries it out.

A pool of samples is drawn once, with replacement, and reshuffled every epoch; the learning rate
falls linearly from epoch to epoch; and the published accuracy is the mean over the last 100
training batches, taken while the weights still move.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from membench.engine.protocols.protocol import Dana2024
from membench.engine.trainer import Batches
from membench.engine.workbench import Outcome, Workbench
from membench.interface.facts import BATCH_STREAM, Facts, generator

BETAS = (0.9, 0.999)  # Adam's defaults in torch
STREAM = 100  # batches in the published accuracy


def find_weights(bench: Workbench, config: Dana2024, seeds: Sequence[int]) -> list[Outcome]:
    facts = [bench.facts(seed) for seed in seeds]
    passes = config.epochs * config.batches * config.batch // len(facts[0])  # as many contexts as exact steps see
    trainer = bench.trainer(seeds, [BETAS] * len(seeds), passes)
    pools = [_Pool(one, config, seed) for one, seed in zip(facts, seeds, strict=True)]
    seen: list[NDArray[np.float32]] = []
    for epoch in range(config.epochs):
        progress = trainer.advance(_rates(config, epoch, len(seeds)), _shuffled(pools))
        seen.append(progress.accuracy)
        bench.report((epoch + 1) / config.epochs, f"{np.nanmean(progress.accuracy):.1%} of the batches right")
    accuracy = np.concatenate(seen, axis=1)  # [R, steps]
    outcomes = []
    for row, seed in enumerate(seeds):
        curve = [round(float(one[row].mean()), 6) for one in seen]
        trace = {"steps": accuracy.shape[1], "curve": curve}
        stream = {"stream_accuracy": float(accuracy[row, -STREAM:].mean())}
        outcomes.append(bench.outcome(seed, bench.weights(trainer, row, seed), trace=trace, metrics=stream))
    return outcomes


def _rates(config: Dana2024, epoch: int, replicas: int) -> NDArray[np.float32]:
    rate = config.lr + (config.lr_end - config.lr) * epoch / config.epochs
    return np.full((replicas, config.batches), rate, dtype=np.float32)


def _shuffled(pools: Sequence[_Pool]) -> Batches:
    epochs = [pool.epoch() for pool in pools]
    return Batches(np.stack([one[0] for one in epochs]), np.stack([one[1] for one in epochs]))


class _Pool:
    """Samples of (context, answer), drawn once."""

    def __init__(self, facts: Facts, config: Dana2024, seed: int) -> None:
        self.form = (config.batches, config.batch)
        self.random = generator(seed, BATCH_STREAM)
        self.contexts = self.random.choice(len(facts), size=config.batches * config.batch, p=facts.prior)
        self.labels = self._draw_labels(facts)

    def _draw_labels(self, facts: Facts) -> NDArray[np.int64]:
        if facts.is_association:
            labels: NDArray[np.int64] = facts.targets[self.contexts]
            return labels
        cumulative = facts.targets.cumsum(axis=1)[self.contexts]
        points = self.random.random(len(self.contexts))[:, None] * cumulative[:, -1:]
        drawn: NDArray[np.int64] = (cumulative <= points).sum(axis=1).clip(max=facts.answers - 1)
        return drawn

    def epoch(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = self.random.permutation(len(self.contexts))
        return self.contexts[order].reshape(self.form), self.labels[order].reshape(self.form)
