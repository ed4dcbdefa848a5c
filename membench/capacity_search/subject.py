"""Subject: one model on one task, of which one option is varied to find how many facts the model memorises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from membench.capacity_search.measurement import Measurement
from membench.capacity_search.search import Search
from membench.errors import UsageError, unknown
from membench.interface.facts import Shape, draw_facts
from membench.interface.options import assignments, label, options_of
from membench.plan.trial import Trial
from membench.records.record import Record

VARIED = ("T0", "N")
FIRST_N = 8  # a small vocabulary, to learn the number of parameters from


@dataclass(frozen=True)
class Subject:
    """One model and task, of which one task option is varied."""

    trials: Sequence[Trial]  # the point as it was asked for, one trial for each seed
    vary: str
    metric: str = "accuracy"  # that has to reach a level

    @classmethod
    def of(cls, trials: Sequence[Trial], vary: str, task_options: Sequence[str], metric: str = "accuracy") -> Subject:
        """UsageError for a grid, or for a task on which nothing can be varied or wholly right."""
        if vary not in VARIED:
            raise unknown("option to vary", vary, VARIED, f"there are: {', '.join(VARIED)}")
        points = len({trial.point for trial in trials})
        if points > 1:
            raise UsageError(
                f"capacity measures one point, but the grid has {points}; give one model and single values"
            )
        task = trials[0].task
        known = options_of(task.config)
        for name in ("T0", vary):
            if name not in known:
                raise UsageError(f"task '{task.name}' has no option {name}, so its capacity cannot be measured")
        if vary == "N" and not known["T0"].automatic:
            raise UsageError(
                f"--vary N needs a task that asks for all contexts with T0=auto, and '{task.name}' does not"
            )
        for name in {"T0", vary} & assignments(task_options).keys():
            raise UsageError(
                f"-T {name}: capacity chooses {name} itself; leave it out, or vary another option with --vary"
            )
        subject = cls(trials, vary, metric)
        answers = subject.shape.answers
        if metric != "accuracy" and answers <= int(metric.partition("@")[2]):
            raise UsageError(f"--at {metric}: with A={answers} answers the right one is always among them")
        if not draw_facts(task, subject.config(subject.first), 0).is_association:
            raise UsageError(f"task '{task.name}' asks for distributions; capacity needs facts with one answer each")
        return subject

    @property
    def base(self) -> Trial:
        return self.trials[0]

    @property
    def first(self) -> int:
        return min(self.shape.vocab, self.base.task_config.T0) if self.vary == "T0" else FIRST_N

    @property
    def shape(self) -> Shape:
        return self.base.task.shape(self.base.task_config)

    @property
    def title(self) -> str:
        trial = self.base
        words = label(trial.task_config).split()
        fixed = " ".join(word for word in words if word.partition("=")[0] not in {"T0", self.vary})
        model = f"{trial.architecture.name} ({label(trial.config)})"
        return f"{model} on {trial.task.name}{f' ({fixed})' if fixed else ''}, protocol {trial.protocol.name}"

    def config(self, value: int) -> Any:
        """The task config with another value. ValueError if the task has none."""
        changed: dict[str, Any] = {"T0": value} if self.vary == "T0" else {"N": value, "T0": None}
        if self.vary == "N" and hasattr(self.base.task_config, "A") and self.shape.answers == self.shape.vocab:
            changed["A"] = None  # answers that are the tokens stay the tokens
        return replace(self.base.task_config, **changed)

    def at(self, value: int) -> list[Trial]:
        return [replace(trial, task_config=self.config(value)) for trial in self.trials]

    def search(self, levels: tuple[float, ...], resolution: float, largest: int | None) -> Search:
        N, S, _ = self.shape
        limit = N**S if self.vary == "T0" else self._largest_with_all_contexts(S)
        limit = min(limit, largest or limit)
        growth, smallest = (1, 1) if self.vary == "T0" else (S, 2)
        return Search(levels, self.first, smallest, limit, growth, resolution)

    def _largest_with_all_contexts(self, S: int) -> int:
        """The largest N for which the task, left to itself, still asks for all N^S contexts."""
        low, high = 2, 1 << 20
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**S == self.config(middle).T0 else (low, middle - 1)
        return low

    def measurement(self, record: Record, trial: Trial) -> Measurement:
        """What a trial of this subject showed."""
        config, answers = trial.task_config, trial.task.shape(trial.task_config).answers
        if self.metric not in record.metrics:
            raise UsageError(
                f"a record of {trial.describe()} was made before {self.metric} was measured; use another --out"
            )
        parameters, bits = record.size["parameters"], record.metrics["bits_per_parameter"]
        accuracy, score = record.metrics["accuracy"], record.metrics.get(self.metric)
        return Measurement(
            value=getattr(config, self.vary),
            seed=trial.seed,
            facts=config.T0,
            load=config.T0 * math.log2(answers) / parameters if parameters else math.nan,
            accuracy=math.nan if accuracy is None else accuracy,
            bits=math.nan if bits is None else bits,
            recall=None if self.metric == "accuracy" else math.nan if score is None else score,
        )
