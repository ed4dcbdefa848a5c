"""The driver: trials to records, through any executor. Nobody else writes the record of a trial that ran."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from membench.engine.execution import Execution
from membench.engine.protocols.protocol import get_protocol
from membench.execute.executor import Ended, Measured, Probed, executor_of
from membench.execute.job import Job, Result, make_jobs, probes_first
from membench.interface.registry import Registry
from membench.plan.trial import Point, Trial
from membench.records.record import Record
from membench.records.store import Store


@dataclass
class Watcher:
    """What a caller may want to see on the way."""

    progress: Callable[[float, str], None] = lambda fraction, text: None
    started: Callable[[Trial], None] = lambda trial: None  # once, when its job is first heard of
    finished: Callable[[Trial, Record], None] = lambda trial, record: None


def execute(
    trials: Sequence[Trial], store: Store, registry: Registry, execution: Execution, watcher: Watcher | None = None
) -> list[Record]:
    """Run the trials and write each record as soon as its job ends. A job that dies costs its own trials."""
    jobs = make_jobs(trials, registry.selection, execution)
    driver = _Driver({(trial.point, trial.seed): trial for trial in trials}, store, watcher or Watcher())
    ready = driver.plan(jobs)
    with closing(executor_of(execution, registry).submit(ready, driver.progress)) as messages:
        for message in messages:
            match message:
                case Measured(job, result):
                    driver.keep(job, result)
                case Probed(job, scores):
                    driver.scores[job] = scores
                case Ended(job, reason):
                    driver.finish(job, reason)
                    ready.extendleft(reversed(driver.after(job)))
    return driver.records


@dataclass
class _Driver:
    trials: dict[tuple[Point, int], Trial]
    store: Store
    watcher: Watcher
    records: list[Record] = field(default_factory=list)
    later: dict[Point, list[Job]] = field(default_factory=dict)  # jobs that wait for probes
    scores: dict[Job, list[float] | None] = field(default_factory=dict)  # of probes
    probed: dict[Point, dict[int, list[float] | None]] = field(default_factory=dict)
    fractions: dict[Job, float] = field(default_factory=dict)
    total: int = 0
    text: str = ""  # the latest words of any job
    begun: set[tuple[Point, int]] = field(default_factory=set)

    def plan(self, jobs: Sequence[Job]) -> deque[Job]:
        """The jobs that can start now; the rest follows."""
        ready, self.later = probes_first(jobs)
        self.total = len(ready) + sum(map(len, self.later.values()))
        return deque(ready)

    def progress(self, job: Job, fraction: float, text: str) -> None:
        self.begin(job)
        self.fractions[job], self.text = fraction, text
        self.watcher.progress(sum(self.fractions.values()) / self.total, self.text)

    def begin(self, job: Job) -> None:
        for key in ((job.point, seed) for seed in job.seeds):
            if key in self.trials and key not in self.begun:
                self.begun.add(key)
                self.watcher.started(self.trials[key])

    def keep(self, job: Job, result: Result) -> None:
        self.begin(job)
        trial = self.trials.pop((job.point, result.record.seed))
        self.store.write(trial, result.record, result.weights)
        self.records.append(result.record)
        self.watcher.finished(trial, result.record)

    def finish(self, job: Job, reason: str) -> None:
        for seed in job.seeds:
            if (job.point, seed) in self.trials:
                self.keep(job, Result(_lost(job, seed, reason)))
        self.progress(job, 1.0, self.text)

    def after(self, job: Job) -> list[Job]:
        """The jobs of a point once its last probe has ended; without scores each of them probes for itself."""
        if job.seeds:
            return []
        parts = self.probed.setdefault(job.point, {})
        parts[job.part] = self.scores.get(job)
        if len(parts) < get_protocol(job.point.protocol, job.point.protocol_version).probes:
            return []
        scores = [parts[part] for part in sorted(parts)]
        text = None if None in scores else json.dumps(scores)
        return [replace(job, probed=text) for job in self.later.pop(job.point)]


def _lost(job: Job, seed: int, reason: str) -> Record:
    """The record of a trial whose job ended without one."""
    point = job.point
    return Record(
        id=point.id,
        seed=seed,
        status="failed",
        architecture={"name": point.architecture, "config": json.loads(point.config)},
        task={"name": point.task, "version": point.task_version, "config": json.loads(point.task_config)},
        protocol={
            "name": point.protocol,
            "version": point.protocol_version,
            "config": json.loads(point.protocol_config),
        },
        error=reason,
    )
