"""The search for the shape of an architecture that memorises most within a budget, on seeds of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from membench.engine.execution import Execution
from membench.engine.protocols.protocol import PROBE_SEEDS, get_protocol
from membench.errors import PluginError
from membench.execute.progress import bar
from membench.execute.run import Run
from membench.interface.declarations import Architecture, Task
from membench.interface.registry import Registry
from membench.plan.budget import Budget
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store
from membench.shape_search.space import Candidate, Space, nearest, spread

SHORT, LONG = 250, 1000  # steps of the first round of the protocol, for all shapes and for the best of them
SURVIVING = 1 / 4  # of the shapes go on to the longer training
LEADERS = 3  # shapes whose neighbours are tried too, half as many in all as the search starts with
MAX_CLIMBS = 6  # rounds of that, while they find anything better
SHAPES = 24  # that a search starts with


@dataclass(frozen=True)
class Subject:
    """What is to be tuned: an architecture within a budget, on one task config."""

    architecture: Architecture[Any]
    task: Task[Any]
    task_config: Any
    budget: Budget
    fixed: Mapping[str, Any]  # options that stay as they are

    @property
    def title(self) -> str:
        return f"{self.architecture.name} on {self.task.name}, {self.budget}"


@dataclass(frozen=True)
class Tried:
    """A shape, and what it reached on the probe seeds, longest training last."""

    candidate: Candidate
    steps: tuple[int, ...]
    scores: tuple[float, ...]  # accuracy, or minus the divergence for distributions; the mean over the seeds

    @property
    def rank(self) -> tuple[int, float, int]:
        """Longer trainings decide over shorter ones; of equals the smaller is better."""
        return (*max(zip(self.steps, self.scores, strict=True), default=(0, 0.0)), -self.candidate.parameters)


@dataclass(frozen=True, repr=False)
class ShapeSearch:
    """The shapes that were tried, best first."""

    subject: Subject
    tried: Sequence[Tried]
    possible: int  # shapes that there were to choose from
    trainings: int

    @property
    def best(self) -> Candidate:
        return self.tried[0].candidate

    @property
    def provenance(self) -> dict[str, Any]:
        """What a record says of how its shape was chosen."""
        budget, fixed = self.subject.budget, self.subject.fixed
        told = {"budget": budget.parameters, "count": budget.count, "shapes": len(self.tried)}
        return {**told, "trainings": self.trainings, **({"fixed": dict(fixed)} if fixed else {})}

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.subject.architecture.name,
            "task": self.subject.task.name,
            "task_config": asdict(self.subject.task_config),
            **self.provenance,
            "possible": self.possible,
            "best": asdict(self.best.config),
            "tried": [
                {"config": asdict(one.candidate.config), "parameters": one.candidate.parameters,
                 "steps": list(one.steps), "scores": [_finite(score) for score in one.scores]}
                for one in self.tried
            ],
        }  # fmt: skip

    @property
    def metric(self) -> str:
        return "KL" if any(score < 0 for one in self.tried for score in one.scores) else "accuracy"

    def table(self, most: int = 8) -> tuple[list[str], list[list[str]]]:
        """Headers, and a row of texts for each of the best shapes."""
        rows = []
        for one in self.tried[:most]:
            reached = dict(zip(one.steps, one.scores, strict=True))
            scores = [_words(reached.get(steps)) for steps in (SHORT, LONG)]
            rows.append([one.candidate.label, f"{one.candidate.parameters:,}", *scores])
        return ["shape", "parameters", *(f"{self.metric}, {steps} steps" for steps in (SHORT, LONG))], rows

    def sentence(self) -> str:
        shape = f"{self.best.label} ({self.best.parameters:,} parameters)"
        if self.possible == 1:
            return f"the only shape: {shape}"
        return f"best: {shape}; {len(self.tried)} of {self.possible} shapes tried, in {self.trainings} trainings"


def search_shapes(
    subject: Subject, store: Store, registry: Registry, execution: Execution, *, shapes: int = SHAPES, show: bool = True
) -> ShapeSearch:
    """Shapes all over the space in short trainings, then neighbours of the best, then the best quarter for longer.

    Learning rate and betas are those that `converged` chooses for the architecture's own choice. Every training is a
    record in `store`, so that an interrupted search goes on where it was. DoesNotFit when no shape is small enough.
    """
    task_shape = subject.task.shape(subject.task_config)
    with bar(f"listing the shapes of {subject.title}", show):
        candidates = Space(subject.architecture, task_shape, subject.budget, subject.fixed).candidates()
    search = _Trainings(subject, store, registry, execution, show)
    if len(candidates) > 1:
        search.choose_rates(candidates[0])
        search.train(spread(candidates, shapes), SHORT)
        search.climb(candidates, max(shapes // (2 * LEADERS), 1))
        best = search.ranked()
        search.train([tried.candidate for tried in best[: math.ceil(len(best) * SURVIVING)]], LONG)
    else:
        search.scores[candidates[0]] = {}  # nothing to compare it with
    return ShapeSearch(subject, search.ranked(), len(candidates), search.done)


class _Trainings:
    """What was trained so far."""

    def __init__(self, subject: Subject, store: Store, registry: Registry, execution: Execution, show: bool) -> None:
        self.subject, self.store, self.registry, self.show = subject, store, registry, show
        self.execution = replace(execution, keep_weights=False, floor=False)
        self.protocol = get_protocol("converged")
        self.rates: dict[str, float] = {}
        self.scores: dict[Candidate, dict[int, float]] = {}
        self.done = 0

    def choose_rates(self, candidate: Candidate) -> None:
        (record, *_) = self._records([candidate], SHORT)
        choice = record.trace.get("choice", {})
        self.rates = {name: choice[name] for name in ("lr", "beta1", "beta2") if name in choice}

    def train(self, candidates: Sequence[Candidate], steps: int) -> None:
        records = self._records(candidates, steps)
        if all(not record.complete for record in records) and records:
            raise PluginError(f"{self.subject.title}: every training failed; the first one: {records[0].error}")
        for number, candidate in enumerate(candidates):
            own = records[number * len(PROBE_SEEDS) : (number + 1) * len(PROBE_SEEDS)]
            self.scores.setdefault(candidate, {})[steps] = float(np.mean([_score(record) for record in own]))

    def climb(self, candidates: Sequence[Candidate], neighbours: int) -> None:
        """Train the neighbours of the best shapes, and theirs, for as long as the best one changes."""
        for _ in range(MAX_CLIMBS):
            leaders = [tried.candidate for tried in self.ranked()[:LEADERS]]
            near = dict.fromkeys(one for leader in leaders for one in nearest(leader, candidates, neighbours))
            self.train([one for one in near if one not in self.scores], SHORT)
            if self.ranked()[0].candidate == leaders[0]:
                return

    def ranked(self) -> list[Tried]:
        tried = [Tried(one, tuple(reached), tuple(reached.values())) for one, reached in self.scores.items()]
        return sorted(tried, key=lambda one: one.rank, reverse=True)

    def _records(self, candidates: Sequence[Candidate], steps: int) -> list[Record]:
        setting = self.protocol.config(steps=steps, rounds=2, **self.rates)
        subject = self.subject
        trials = [
            Trial(subject.architecture, one.config, subject.task, subject.task_config, self.protocol, setting, seed)
            for one in candidates
            for seed in PROBE_SEEDS
        ]
        self.done += len(trials)
        run = Run.of(trials, self.store, self.registry, self.execution)
        return run.carry_out(self.show, f"trainings of {len(candidates)} shapes, {subject.title}")


def _score(record: Record) -> float:
    """A failed training costs its own shape."""
    name = "kl" if record.asks_for_distributions else "accuracy"
    value = record.metrics.get(name)
    if not record.complete or value is None:
        return -math.inf
    return -value if record.asks_for_distributions else value


def _words(score: float | None) -> str:
    return "" if score is None else f"{abs(score):.4f}" if math.isfinite(score) else "failed"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
