"""Execution: how to run trials, as opposed to which."""

from __future__ import annotations

import math
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
    cpus: float | None = None  # that Ray sets aside for each job; None: 1
    gpus: float | None = None  # likewise; None: 1 on a GPU
    address: str | None = None  # of a Ray cluster; None: RAY_ADDRESS, or one that is started here

    def __post_init__(self) -> None:
        _require("device", self.device.partition(":")[0], DEVICES)
        _require("kernel", self.kernel, SWITCH)
        _require("compile", self.compiling, SWITCH)
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"jobs={self.jobs}: a whole number of at least 1 is needed")
        self._check_ray()

    def _check_ray(self) -> None:
        given = {"cpus": self.cpus, "gpus": self.gpus, "address": self.address}
        names = [name for name, value in given.items() if value is not None]
        if names and self.executor != "ray":
            raise UsageError(f"{' and '.join(names)}: only the executor 'ray' uses that, and this is '{self.executor}'")
        if self.cpus is not None and not 0 < self.cpus < math.inf:
            raise UsageError(f"cpus={self.cpus:g}: a number above 0 is needed, such as 1 or 0.5")
        if self.gpus is not None and not (0 <= self.gpus <= 1 or (self.gpus > 1 and float(self.gpus).is_integer())):
            raise UsageError(f"gpus={self.gpus:g}: a share of one GPU such as 0.25, or a whole number, is needed")

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
