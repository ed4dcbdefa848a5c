"""What a trial may take, enforced from outside: a model that never ends, or takes all memory, costs its own trial."""

from __future__ import annotations

import time
from dataclasses import dataclass

from membench.execute.job import Job

LOOK = 0.1  # seconds between two looks at the memory of the workers


@dataclass(frozen=True)
class Limits:
    """None: no limit."""

    timeout: float | None = None  # seconds for each trial
    memory: int | None = None  # bytes for a worker and its children

    def seconds(self, job: Job) -> float | None:
        """Seeds that are trained together share their time, as the seconds in a record do; a probe has one trial's."""
        return None if self.timeout is None else self.timeout * max(len(job.seeds), 1)

    @property
    def patience(self) -> float | None:
        """Seconds until the limits have to be looked at again; None: no need to."""
        if self.memory is not None:
            return LOOK
        return None if self.timeout is None else max(LOOK, min(1.0, self.timeout / 10))

    def exceeded(self, job: Job, started: float | None, memory: int) -> str:
        """Why a job has to be stopped now; empty if it may go on."""
        seconds = self.seconds(job)
        if seconds is not None and started is not None and time.monotonic() - started > seconds:
            each = f" for each of its {len(job.seeds)} trials" if len(job.seeds) > 1 else ""
            return f"stopped after {seconds:g} s: --timeout allows {self.timeout:g} s{each}"
        if self.memory is not None and memory > self.memory:
            return f"stopped when it held {memory:,} bytes of memory: --memory allows {self.memory:,}"
        return ""
