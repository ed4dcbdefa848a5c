"""How to run trials, as opposed to which."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from membench.plan.trial import Trial
from membench.records.record import Record


@dataclass(frozen=True)
class Execution:
    """How to run, as opposed to what; none of it is part of a trial's identity."""

    device: str = "cpu"
    kernel: str = "auto"
    compiling: str = "auto"
    floor: bool = False  # find the floor of the divergence too
    keep_weights: bool = False  # beside the records
    jobs: int | None = None  # worker processes; None: one for each core, or one for a GPU

    @property
    def workers(self) -> int:
        if self.jobs:
            return self.jobs
        return available_cores() if self.device == "cpu" else 1


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Watcher:
    """What a caller may want to see on the way."""

    progress: Callable[[float, str], None] = lambda fraction, text: None
    finished: Callable[[Trial, Record], None] = lambda trial, record: None
