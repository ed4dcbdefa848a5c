"""Execution: how to run trials, as opposed to which."""

from __future__ import annotations

import os
from dataclasses import dataclass

from membench.errors import UsageError

DEVICES = ("cpu", "cuda", "mps")
SWITCH = ("auto", "on", "off")


@dataclass(frozen=True)
class Execution:
    """How to run, as opposed to what; none of it is part of a trial's identity."""

    device: str = "cpu"
    kernel: str = "auto"  # fused training, where an architecture has it
    compiling: str = "auto"  # torch.compile, for training without a kernel
    floor: bool = False  # find the floor of the divergence too
    keep_weights: bool = False  # beside the records
    jobs: int | None = None  # worker processes; None: one for each core, or one for a GPU
    executor: str = "local"  # a name in membench.execute.executor.EXECUTORS
    track: tuple[str, ...] = ()  # names of trackers that are told what becomes of trials

    def __post_init__(self) -> None:
        _require("device", self.device.partition(":")[0], DEVICES)
        _require("kernel", self.kernel, SWITCH)
        _require("compile", self.compiling, SWITCH)
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"jobs={self.jobs}: a whole number of at least 1 is needed")

    @property
    def workers(self) -> int:
        if self.executor == "inline":
            return 1
        if self.jobs:
            return self.jobs
        return available_cores() if self.device == "cpu" else 1


def _require(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise UsageError(f"{name} '{value}' is not one of {', '.join(valid)}")


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
