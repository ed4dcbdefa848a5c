"""The driver: trials to records, through any executor. Nobody else writes the record of a trial that ran."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from membench.engine.execution import Execution
from membench.execute.executor import Ended, Measured, Probed, executor_of
from membench.execute.job import Job, Result, make_jobs, probes_first
from membench.execute.probes import Probes
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
    jobs = [
        replace(job, selection=registry.needed_for(job.point.architecture, job.point.task))
        for job in make_jobs(trials, registry.selection, execution)
    ]
    driver = _Driver({(trial.point, trial.seed): trial for trial in trials}, store, watcher or Watcher())
    driver.plan(jobs)
    with closing(executor_of(execution, registry).submit(driver.ready, driver.progress)) as messages:
        for message in messages:
            match message:
                case Measured(job, result):
                    driver.keep(job, result)
                case Probed(job, scores, seconds):
                    driver.keep_scores(job, scores, seconds)
                case Ended():
                    driver.end(message)
    return driver.records


@dataclass
class _Driver:
    trials: dict[tuple[Point, int], Trial]  # that have no record yet
    store: Store
    watcher: Watcher
    records: list[Record] = field(default_factory=list)
    ready: deque[Job] = field(default_factory=deque)  # the executor takes from the left
    later: dict[Point, list[Job]] = field(default_factory=dict)  # jobs that wait for probes
    probes: dict[Point, Probes] = field(default_factory=dict)
    fractions: dict[Job, float] = field(default_factory=dict)
    total: int = 0
    text: str = ""  # the latest words of any job
    begun: set[tuple[Point, int]] = field(default_factory=set)

    def plan(self, jobs: Sequence[Job]) -> None:
        """The jobs that can start now; the rest follows. Probes that an interrupted run left are used."""
        ready, self.later = probes_first(jobs)
        trials = {trial.point: trial for trial in self.trials.values()}
        self.probes = {point: Probes.of(self.store, trials[point]) for point in self.later}
        self.ready.extend(job for job in ready if job.seeds or job.part not in self.probes[job.point].scores)
        self.total = len(self.ready) + sum(map(len, self.later.values()))
        for point in [point for point, probes in self.probes.items() if probes.are_complete]:
            self._release(point)

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
        if (job.point, result.record.seed) not in self.trials:
            return  # a worker that says it twice
        self.begin(job)
        trial = self.trials.pop((job.point, result.record.seed))
        self.store.write(trial, result.record, result.weights)
        self.records.append(result.record)
        self.watcher.finished(trial, result.record)

    def keep_scores(self, job: Job, scores: list[float] | None, seconds: float) -> None:
        self.probes[job.point].keep(job.part, scores, seconds)

    def end(self, message: Ended) -> None:
        """What follows from the end of a job: another try, the failure of its trials, or the jobs that it held up."""
        job, reason = message.job, message.reason
        if message.died and job.attempt == 1:
            self._retry(job)
            return
        if message.died:
            reason = f"{reason}, and so did the one before it"
        self._fail(job, reason, message.output)
        if job.seeds:
            self._forget_probes(job.point)
        elif job.part in self.probes[job.point].scores:
            if self.probes[job.point].are_complete:
                self._release(job.point)
        else:
            self._give_up(job.point, f"while its learning rate was chosen: {reason}", message.output)

    def _retry(self, job: Job) -> None:
        """Once, each seed alone: one of them may be what the others died of."""
        left = [seed for seed in job.seeds if (job.point, seed) in self.trials]
        again = [replace(job, seeds=(seed,), attempt=2) for seed in left] if job.seeds else [replace(job, attempt=2)]
        self.ready.extendleft(reversed(again))
        self.fractions.pop(job, None)
        self.total += len(again) - 1

    def _fail(self, job: Job, reason: str, output: str) -> None:
        for seed in job.seeds:
            if (job.point, seed) in self.trials:
                self.keep(job, Result(_lost(job, seed, reason)).printing(output))
        self.progress(job, 1.0, self.text)

    def _release(self, point: Point) -> None:
        """The jobs of a point once its last probe has ended; without scores each of them probes for itself."""
        scores = self.probes[point].in_order()
        text, seconds = None if None in scores else json.dumps(scores), sum(self.probes[point].seconds.values())
        jobs = [replace(job, probed=text, probe_seconds=seconds) for job in self.later.pop(point, [])]
        self.ready.extendleft(reversed(jobs))

    def _give_up(self, point: Point, reason: str, output: str) -> None:
        """All trials of a point, when even a probe was stopped or died."""
        others = [job for job in self.ready if job.point == point]
        for job in others:
            self.ready.remove(job)
        for job in [*others, *self.later.pop(point, [])]:
            self._fail(job, reason, output)
        self._forget_probes(point)

    def _forget_probes(self, point: Point) -> None:
        """They are only kept for a run that is interrupted."""
        if point in self.probes and not any(owner == point for owner, _ in self.trials):
            self.probes[point].remove()


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
