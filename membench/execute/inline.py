"""The executor `inline`: one job after another in this process, for notebooks, debuggers and classes of `__main__`."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from membench.execute.executor import Ended, Measured, Message, Probed, Report
from membench.execute.job import Job
from membench.execute.worker import run_job, run_probe
from membench.interface.registry import Registry
from membench.printing import plugin_speaks


@dataclass(frozen=True)
class Inline:
    """Its registry may hold what no other process could load."""

    registry: Registry

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        while jobs:
            job = jobs.popleft()
            with _as_in_a_worker():
                messages = self._run(job, report)
            yield from messages
            yield Ended(job)

    def _run(self, job: Job, report: Report) -> list[Message]:
        told = functools.partial(report, job)
        if not job.seeds:
            return [Probed(job, run_probe(job, self.registry, told))]
        return [Measured(job, result) for result in run_job(job, self.registry, told)]


@contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """What a model prints goes to standard error, and torch gets its threads back that a job takes from it."""
    import torch

    threads = torch.get_num_threads()
    try:
        with plugin_speaks():
            yield
    finally:
        torch.set_num_threads(threads)
