"""The protocol `converged`: train until more steps no longer help.

First a learning rate and betas are chosen from a small fixed grid, on facts that nobody measures:
so a trial's number depends on its own seed and not on which other seeds were run with it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from membench.engine.protocols.protocol import Converged
from membench.engine.trainer import Trainer
from membench.engine.workbench import Outcome, Workbench
from membench.interface.facts import Facts
from membench.measure.evaluate import InvalidOutput, Metrics, evaluate

RATES = (0.003, 0.01, 0.03)
BETAS = ((0.95, 0.95), (0.9, 0.999))  # attention wants the first pair, MLPs the second
PROBE = 2  # length of a probe in first rounds: shorter ones prefer settings that lose in the rounds that follow
PROBE_SEEDS = (1_000_000_007, 1_000_000_009)  # seeds that no trial uses
SEGMENT = 50  # steps between two looks at whether all is memorised


@dataclass(frozen=True, order=True)
class AdamSetting:
    """A point of the grid."""

    lr: float
    beta1: float
    beta2: float


@dataclass
class _Replica:
    """One seed on its way: where it starts, and the best that was found."""

    seed: int
    setting: AdamSetting
    module: nn.Module  # with its initial weights; every round starts from them
    facts: Facts
    rounds: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    metrics: Metrics | None = None
    done: bool = False


def choose(bench: Workbench, config: Converged) -> dict[str, Any]:
    """The setting of the grid that does best on the probe seeds."""
    return settle(config, [probe(bench, config, part) for part in range(len(PROBE_SEEDS))])


def settle(config: Converged, parts: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The choice that the scores of all probe seeds lead to, by their mean."""
    grid = _grid(config)
    if len(grid) == 1:
        return {**asdict(grid[0]), "edge": False, "tried": []}
    scores = {one: float(np.mean(each)) for one, each in zip(grid, zip(*parts, strict=True), strict=True)}
    best = max(grid, key=lambda one: scores[one])
    edge = config.lr is None and best.lr in (RATES[0], RATES[-1])
    return {**asdict(best), "edge": edge, "tried": [{**asdict(one), "score": scores[one]} for one in grid]}


def probe(bench: Workbench, config: Converged, part: int) -> list[float]:
    """For one probe seed, the score of each setting after one round; a probe that memorises everything ends early."""
    grid = _grid(config)
    if len(grid) == 1:
        return []
    replicas = [_start(bench, config, PROBE_SEEDS[part], setting) for setting in grid]
    _round(bench, replicas, config.steps * PROBE, lambda fraction: bench.report(fraction, "choosing a learning rate"))
    return [_probe_score(replica) for replica in replicas]


def _grid(config: Converged) -> list[AdamSetting]:
    rates = RATES if config.lr is None else (config.lr,)
    pairs = BETAS if config.beta1 is None or config.beta2 is None else ((config.beta1, config.beta2),)
    return [AdamSetting(lr, *pair) for lr, pair in itertools.product(rates, pairs)]


def _probe_score(replica: _Replica) -> float:
    """The accuracy, or minus the divergence for distributions; diverging is worst."""
    if replica.metrics is None:
        return -1e9  # it diverged
    # where accuracies are equal, the lower divergence is nearer to memorising more
    accuracy = replica.metrics.accuracy if replica.facts.is_association else 0.0
    return accuracy - (1e-4 if replica.facts.is_association else 1.0) * replica.metrics.kl


def find_weights(bench: Workbench, config: Converged, seeds: Sequence[int]) -> list[Outcome]:
    """Rounds of Adam from the same start, each twice as long, until a longer one is no better than noise."""
    choice = settle(config, bench.probed) if bench.probed else choose(bench, config)
    setting = AdamSetting(choice["lr"], choice["beta1"], choice["beta2"])
    replicas = [_start(bench, config, seed, setting) for seed in seeds]
    total = config.steps * (2**config.rounds - 1)
    for number in range(config.rounds):
        active = [replica for replica in replicas if not replica.done]
        if not active:
            break
        steps, spent = config.steps * 2**number, config.steps * (2**number - 1)
        words = f"{len(active)} still learning"
        _round(bench, active, steps, functools.partial(_report, bench, spent / total, steps / total, words))
    return [_outcome(bench, replica, choice) for replica in replicas]


def _start(bench: Workbench, config: Converged, seed: int, setting: AdamSetting) -> _Replica:
    return _Replica(seed, setting, bench.model(seed, config.dtype), bench.facts(seed))


def _report(bench: Workbench, start: float, share: float, words: str, fraction: float) -> None:
    bench.report(start + share * fraction, words)


def _round(bench: Workbench, active: Sequence[_Replica], steps: int, report: Callable[[float], None]) -> None:
    """Train all of them from their initial weights, with rates that fall linearly to zero, and judge the result."""
    betas = [(r.setting.beta1, r.setting.beta2) for r in active]
    trainer = bench.trainer([r.module for r in active], [r.facts for r in active], betas, steps)
    decay = np.linspace(1.0, 0.0, steps, endpoint=False)
    rates = np.array([r.setting.lr * decay for r in active], dtype=np.float32)
    curves = _descend(trainer, rates, [r.facts.is_association for r in active], report)
    for row, replica in enumerate(active):
        taken = int(np.count_nonzero(rates[row]))
        _judge(bench, replica, trainer.state(row), {"steps": taken, "curve": _thin(curves[row])})


def _descend(
    trainer: Trainer, rates: np.ndarray[Any, Any], can_finish: Sequence[bool], report: Callable[[float], None]
) -> list[list[float]]:
    """Take the steps, a segment at a time; a replica that knows everything gets no more rate. Returns accuracies."""
    curves: list[list[float]] = [[] for _ in can_finish]
    for start in range(0, rates.shape[1], SEGMENT):
        part = rates[:, start : start + SEGMENT]
        if not part.any():
            break
        last = trainer.advance(part).accuracy[:, -1]
        for row in np.flatnonzero(part.any(axis=1)).tolist():
            curves[row].append(round(float(last[row]), 6))
            if can_finish[row] and last[row] >= 1 - 1e-6:
                rates[row, start + SEGMENT :] = 0
        report(start / rates.shape[1])
    return curves


def _judge(bench: Workbench, replica: _Replica, state: dict[str, torch.Tensor], entry: dict[str, Any]) -> None:
    """Keep the round's weights if they are better, and decide whether a longer round could pay."""
    replica.rounds.append(entry)
    try:
        found = evaluate(bench.outcome(replica.seed, state).module, replica.facts, parameters=0)
    except InvalidOutput as error:
        entry["diverged"] = str(error)
        replica.best = replica.best or state
        return
    entry.update(accuracy=found.accuracy, kl=found.kl)
    before = replica.metrics
    if before is None or _score(found, replica.facts) > _score(before, replica.facts):
        replica.best, replica.metrics = state, found
    everything = replica.facts.is_association and found.accuracy >= 1 - 1e-12
    replica.done = everything or (before is not None and not _better(found, before, replica.facts))


def _score(metrics: Metrics, facts: Facts) -> tuple[float, float]:
    return (metrics.accuracy, -metrics.kl) if facts.is_association else (-metrics.kl, metrics.accuracy)


def _better(found: Metrics, before: Metrics, facts: Facts) -> bool:
    """Whether twice the steps gained more than noise.

    That is one standard error of the accuracy, or a twentieth of the divergence, which still falls
    where the accuracy does not show it yet; with distributions, a hundredth of the divergence.
    """
    if not facts.is_association:
        return found.kl < 0.99 * before.kl - 1e-6
    noise = np.sqrt(before.accuracy * (1 - before.accuracy) * float(facts.prior @ facts.prior))
    return bool(found.accuracy > before.accuracy + noise or found.kl < 0.95 * before.kl)


def _thin(curve: list[float], points: int = 40) -> list[float]:
    return curve[:: max(1, len(curve) // points)]


def _outcome(bench: Workbench, replica: _Replica, choice: dict[str, Any]) -> Outcome:
    """The best weights. Where every round diverged these are the first ones, and measuring them will say so."""
    trace = {
        "converged": replica.done,
        "steps": sum(entry["steps"] for entry in replica.rounds),
        "rounds": replica.rounds,
        "choice": choice,
    }
    return bench.outcome(replica.seed, replica.best, trace=trace)
