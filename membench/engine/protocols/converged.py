"""The protocol `converged`: train until more steps no longer help, for the least loss and then for the most facts.

Where more is asked than fits, the least cross-entropy is far from the most facts right: it spends the model on facts
that it cannot hold. So where the first stage does not get everything right, a second one starts anew with the bounded
loss -log(p + slack), whose slack rises from c/A to 1 and which gives up, ever more firmly, what is hopeless.

The first stage chooses its learning rate and betas from a small fixed grid, on facts that nobody measures: a trial's
number depends on its own seed and not on which other seeds were run with it. The second chooses on the trial's own
facts, by taking the best of all that it tries: whatever weights answer so many facts, the model holds at least those.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from membench.engine.protocols.protocol import PROBE_SEEDS, Converged
from membench.engine.trainer import Trainer
from membench.engine.workbench import Outcome, Workbench
from membench.interface.facts import Facts
from membench.measure.evaluate import InvalidOutput, Metrics, evaluate

RATES = (0.003, 0.01, 0.03)
BETAS = ((0.95, 0.95), (0.9, 0.999))  # attention wants the first pair, MLPs the second
PROBE = 2  # length of a probe in first rounds: shorter ones prefer settings that lose in the rounds that follow
SEGMENT = 50  # steps between two looks at whether all is memorised
# c of the slack c/A that the bounded loss starts from: the more too much is asked, the larger the best c.
SLACKS = (0.3, 0.03, 0.0003)
BOUNDED_RATE = 0.01  # no other was seen to be better by more than noise, whatever suits cross-entropy
ALL_RIGHT = 1 - 1e-12


@dataclass(frozen=True, order=True)
class Setting:
    """How one training goes, but for its length."""

    lr: float
    beta1: float
    beta2: float
    c: float | None = None  # of the bounded loss; None: cross-entropy


@dataclass
class Round:
    """One training from the initial weights, and what came of it."""

    setting: Setting
    length: int  # steps that it was to take
    state: dict[str, torch.Tensor]
    told: dict[str, Any]  # for the trace
    metrics: Metrics | None  # None: it diverged

    @property
    def accuracy(self) -> float:
        return 0.0 if self.metrics is None else self.metrics.accuracy


@dataclass
class Replica:
    """One seed on its way."""

    seed: int
    facts: Facts
    dtype: str
    rounds: list[Round] = field(default_factory=list)  # of cross-entropy
    bounded: list[Round] = field(default_factory=list)
    best: Round | None = None  # of cross-entropy
    done: bool = False
    bounded_done: bool = True

    @classmethod
    def start(cls, bench: Workbench, config: Converged, seed: int) -> Replica:
        return cls(seed, bench.facts(seed), config.dtype)

    @property
    def knows_everything(self) -> bool:
        rounds = [*self.rounds, *self.bounded]
        return self.facts.is_association and any(one.accuracy >= ALL_RIGHT for one in rounds)

    @property
    def most(self) -> float:
        """The best accuracy of the bounded stage."""
        return max((one.accuracy for one in self.bounded), default=0.0)

    @property
    def noise(self) -> float:
        """One standard error of the difference of two such accuracies: what a gain has to exceed."""
        return float(np.sqrt(2 * self.most * (1 - self.most) * (self.facts.prior @ self.facts.prior)))


def choose(bench: Workbench, config: Converged, finishes: bool = True) -> dict[str, Any]:
    """The setting of the grid that does best on the probe seeds."""
    return settle(config, [probe(bench, config, part, finishes) for part in range(len(PROBE_SEEDS))])


def settle(config: Converged, parts: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The choice that the scores of all probe seeds lead to, by their mean."""
    grid = _grid(config)
    if len(grid) == 1:
        return {**_told(grid[0]), "edge": False, "tried": []}
    scores = {one: float(np.mean(each)) for one, each in zip(grid, zip(*parts, strict=True), strict=True)}
    best = max(grid, key=lambda one: scores[one])
    edge = config.lr is None and best.lr in (RATES[0], RATES[-1])
    return {**_told(best), "edge": edge, "tried": [{**_told(one), "score": scores[one]} for one in grid]}


def probe(bench: Workbench, config: Converged, part: int, finishes: bool = True) -> list[float]:
    """For one probe seed, the score of each setting after one round; a probe that memorises everything ends early."""
    grid = _grid(config)
    if len(grid) == 1:
        return []
    replica = Replica.start(bench, config, PROBE_SEEDS[part])
    runs = [(replica, setting) for setting in grid]
    report = _reporter(bench, 0.0, 1.0, "choosing a learning rate")
    return [_score_of(one, replica.facts) for one in _train(bench, runs, config.steps * PROBE, finishes, report)]


def _grid(config: Converged) -> list[Setting]:
    rates = RATES if config.lr is None else (config.lr,)
    pairs = BETAS if config.beta1 is None or config.beta2 is None else ((config.beta1, config.beta2),)
    return [Setting(lr, *pair) for lr, pair in itertools.product(rates, pairs)]


def _score_of(one: Round, facts: Facts) -> float:
    """The accuracy, or minus the divergence for distributions; diverging is worst."""
    if one.metrics is None:
        return -1e9
    # where accuracies are equal, the lower divergence is nearer to memorising more
    accuracy = one.metrics.accuracy if facts.is_association else 0.0
    return accuracy - (1e-4 if facts.is_association else 1.0) * one.metrics.kl


def find_weights(bench: Workbench, config: Converged, seeds: Sequence[int]) -> list[Outcome]:
    two_stages = config.rounds > 1
    replicas, choice = least_loss(bench, config, seeds, finishes=True, share=0.5 if two_stages else 1.0)
    if two_stages:
        overloaded = [one for one in replicas if one.facts.is_association and not one.knows_everything]
        _most_facts(bench, config, choice["lr"], overloaded)
    return [_outcome(bench, replica, choice) for replica in replicas]


def least_loss(
    bench: Workbench, config: Converged, seeds: Sequence[int], finishes: bool, share: float = 1.0
) -> tuple[list[Replica], dict[str, Any]]:
    """The first stage: rounds of Adam from the same start, each twice as long, until one is no better than noise.

    `share` is how much of the whole it is, for whoever watches.
    """
    choice = settle(config, bench.probed) if bench.probed else choose(bench, config, finishes)
    setting = Setting(choice["lr"], choice["beta1"], choice["beta2"])
    replicas = [Replica.start(bench, config, seed) for seed in seeds]
    total = config.steps * (2**config.rounds - 1) / share
    for number in range(config.rounds):
        active = [replica for replica in replicas if not replica.done]
        if not active:
            break
        steps, spent = config.steps * 2**number, config.steps * (2**number - 1)
        report = _reporter(bench, spent / total, steps / total, f"{len(active)} still learning")
        found = _train(bench, [(replica, setting) for replica in active], steps, finishes, report)
        for replica, one in zip(active, found, strict=True):
            _judge(replica, one)
    return replicas, choice


def _most_facts(bench: Workbench, config: Converged, lr: float, replicas: Sequence[Replica]) -> None:
    """The second stage: each setting of the bounded loss in half a round, then the best in ever longer rounds."""
    for replica in replicas:
        replica.bounded_done = False
    lengths = [max(config.steps // 2, 1), *(config.steps * 2**number for number in range(1, config.rounds))]
    spent = 0
    for number, steps in enumerate(lengths):
        active = [replica for replica in replicas if not replica.bounded_done]
        if not active:
            return
        runs = [(replica, setting) for replica in active for setting in _contenders(replica, config, lr)]
        whole = 2 * sum(lengths)  # the first stage is the other half of what is watched
        report = _reporter(bench, 0.5 + spent / whole, steps / whole, f"{len(active)} still gaining facts")
        spent += steps
        found = _train(bench, runs, steps, True, report)
        for replica in active:
            before, noise = replica.most, replica.noise
            replica.bounded += [one for (owner, _), one in zip(runs, found, strict=True) if owner is replica]
            replica.bounded_done = replica.knows_everything or (number > 1 and replica.most <= before + noise)


def _contenders(replica: Replica, config: Converged, lr: float) -> list[Setting]:
    """All of them at first; then the best, and the next one too while the two cannot be told apart.

    A rate above the usual that suits cross-entropy is tried too. A lower one would lose every short round.
    """
    if not replica.bounded:
        given = (config.beta1, config.beta2)  # set together or not at all
        beta1, beta2 = BETAS[0] if given[0] is None or given[1] is None else (given[0], given[1])
        rate = config.lr or BOUNDED_RATE
        usual = [Setting(rate, beta1, beta2, c) for c in SLACKS]
        return [*usual, Setting(lr, beta1, beta2, SLACKS[1])] if lr > rate else usual
    longest = max(one.length for one in replica.bounded)
    best = sorted((one for one in replica.bounded if one.length == longest), key=lambda one: -one.accuracy)
    close = [one.setting for one in best if one.accuracy >= best[0].accuracy - replica.noise]
    return close[:2] if len(best) > 2 else close[:1]


def _reporter(bench: Workbench, start: float, share: float, words: str) -> Callable[[float], None]:
    return lambda fraction: bench.report(start + share * fraction, words)


def _train(
    bench: Workbench,
    runs: Sequence[tuple[Replica, Setting]],
    steps: int,
    finishes: bool,
    report: Callable[[float], None],
) -> list[Round]:
    """Train from the initial weights, with rates that fall linearly to zero, and see what came of each."""
    replicas, settings = [one for one, _ in runs], [setting for _, setting in runs]
    betas = [(setting.beta1, setting.beta2) for setting in settings]
    trainer = bench.trainer([one.seed for one in replicas], betas, steps, replicas[0].dtype)
    decay = np.linspace(1.0, 0.0, steps, endpoint=False)
    rates = np.array([setting.lr * decay for setting in settings], dtype=np.float32)
    can_finish = [one.facts.is_association for one in replicas]
    curves = _descend(trainer, rates, _slack(settings, bench.shape.answers, steps), can_finish, finishes, report)
    found = []
    for row, (replica, setting) in enumerate(runs):
        taken = int(np.count_nonzero(rates[row]))
        told = {"steps": taken, "curve": _thin(curves[row])}
        state = bench.weights(trainer, row, replica.seed)
        found.append(_measured(bench, replica, Round(setting, steps, state, told, None)))
    return found


def _slack(settings: Sequence[Setting], answers: int, steps: int) -> NDArray[np.float32] | None:
    """From c/A to 1, by the same factor at each step."""
    starts = [setting.c for setting in settings if setting.c is not None]
    if not starts:
        return None
    left = 1 - np.arange(steps) / steps
    return np.array([(c / answers) ** left for c in starts], dtype=np.float32)


def _descend(
    trainer: Trainer,
    rates: NDArray[np.float32],
    slack: NDArray[np.float32] | None,
    can_finish: Sequence[bool],
    finishes: bool,
    report: Callable[[float], None],
) -> list[list[float]]:
    """Take the steps, a segment at a time; a replica that knows everything gets no more rate. Returns accuracies."""
    curves: list[list[float]] = [[] for _ in can_finish]
    for start in range(0, rates.shape[1], SEGMENT):
        segment = slice(start, start + SEGMENT)
        part = rates[:, segment]
        if not part.any():
            break
        own = None if slack is None else slack[:, segment]
        seen = trainer.advance(part, slack=own, finishes=finishes and all(can_finish)).accuracy
        for row in np.flatnonzero(part.any(axis=1)).tolist():
            last = seen[row][~np.isnan(seen[row])][-1]
            curves[row].append(round(float(last), 6))
            if can_finish[row] and last >= 1 - 1e-6:
                rates[row, start + SEGMENT :] = 0
        report(start / rates.shape[1])
    return curves


def _measured(bench: Workbench, replica: Replica, one: Round) -> Round:
    try:
        metrics = evaluate(bench.loaded(replica.seed, one.state), replica.facts, parameters=0)
    except InvalidOutput as error:
        return replace(one, told={**one.told, "diverged": str(error)})
    return replace(one, told={**one.told, "accuracy": metrics.accuracy, "kl": metrics.kl}, metrics=metrics)


def _judge(replica: Replica, one: Round) -> None:
    """Whether a round of cross-entropy is the best so far, and whether a longer one could pay."""
    replica.rounds.append(one)
    before = replica.best
    if one.metrics is None:
        replica.best = before or one
        return
    if before is None or before.metrics is None:
        replica.best, replica.done = one, replica.knows_everything
        return
    if _score(one.metrics, replica.facts) > _score(before.metrics, replica.facts):
        replica.best = one
    replica.done = one.accuracy >= ALL_RIGHT or not _better(one.metrics, before.metrics, replica.facts)


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


def _told(setting: Setting) -> dict[str, Any]:
    return {name: value for name, value in asdict(setting).items() if value is not None}


def first_trace(replica: Replica, choice: dict[str, Any]) -> dict[str, Any]:
    """What is told of the first stage."""
    return {
        "converged": replica.done,
        "steps": sum(one.told["steps"] for one in replica.rounds),
        "rounds": [one.told for one in replica.rounds],
        "choice": choice,
    }


def _outcome(bench: Workbench, replica: Replica, choice: dict[str, Any]) -> Outcome:
    """The weights that answer most facts and, where they are others, those of the least loss.

    Where every round diverged these are the first ones, and measuring them will say so.
    """
    assert replica.best is not None  # there is one round at least
    trace = first_trace(replica, choice)
    if not replica.bounded:
        return bench.outcome(replica.seed, replica.best.state, trace=trace)
    most = max([replica.best, *replica.bounded], key=lambda one: one.accuracy)
    least = min(_finite(replica.rounds), key=lambda one: one.metrics.kl if one.metrics else np.inf, default=None)
    trace |= {
        "converged": replica.done and replica.bounded_done,
        "steps": sum(one.told["steps"] for one in [*replica.rounds, *replica.bounded]),
        "bounded": [{**_told(one.setting), **one.told} for one in replica.bounded],
        "most_facts": {"loss": "cross-entropy" if most is replica.best else "bounded", **_told(most.setting)},
    }
    return bench.outcome(replica.seed, most.state, trace=trace, least_loss=least.state if least else None)


def _finite(rounds: Iterable[Round]) -> list[Round]:
    return [one for one in rounds if one.metrics is not None]
