"""The executor `inline`: one job after another in this process, for notebooks, debuggers and classes of `__main__`."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass

from membench.errors import Impossible, in_words
from membench.execute.executor import Ended, Measured, Message, Probed, Report
from membench.execute.job import KEPT_OUTPUT, Job
from membench.execute.worker import run_job, run_probe
from membench.interface.process_state import process_state_kept
from membench.interface.registry import Registry
from membench.printing import Harmless


class Told(Harmless):
    """Standard output of a model: goes to standard error, and its end is kept."""

    tail = ""

    def write(self, text: str) -> int:
        self.tail = (self.tail + text)[-KEPT_OUTPUT:]
        return super().write(text)


@dataclass(frozen=True)
class Inline:
    """Its registry may hold what no other process could load."""

    registry: Registry

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        import torch  # noqa: F401  # before its settings are noted

        while jobs:
            job = jobs.popleft()
            told = Told(sys.stderr)
            reason = "it left no record"
            messages: list[Message] = []
            try:
                # what a model prints goes to standard error, and what it sets for all is taken back
                with process_state_kept(), redirect_stdout(told):
                    messages.extend(self._run(job, report, told))
            except (Impossible, KeyboardInterrupt):
                raise
            except BaseException as error:  # the plugin cannot be found, or worse
                reason = in_words(error)
            yield from messages
            yield Ended(job, reason, told.tail)

    def _run(self, job: Job, report: Report, told: Told) -> Iterator[Message]:
        telling = functools.partial(report, job)
        if not job.seeds:
            yield Probed(job, *run_probe(job, self.registry, telling))
            return
        for result in run_job(job, self.registry, telling):
            yield Measured(job, result.printing(told.tail))
