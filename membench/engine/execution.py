"""Execution: how to run trials, as opposed to which."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

from membench.errors import UsageError

DEVICES = ("cpu", "cuda", "mps")
SWITCH = ("auto", "on", "off")
MIN_MEMORY = 512 << 20
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True)
class Execution:
    """How to run, as opposed to what; none of it is part of a trial's identity."""

    device: str = "cpu"
    kernel: str = "auto"  # fused training, where an architecture has it
    compiling: str = "auto"  # torch.compile, for training without a kernel
    floor: bool = False  # find the floor of the divergence too
    keep_weights: bool = False  # beside the records
    quantize: tuple[str, ...] = ()  # names in membench.measure.quantize.BITS: ask again with weights rounded to these
    jobs: int | None = None  # worker processes; None: one for each core, or one for a GPU
    executor: str = "local"  # a name in membench.execute.executor.EXECUTORS
    timeout: float | None = None  # seconds for each trial
    memory: int | None = None  # bytes that a worker process and its children may hold
    track: tuple[str, ...] = ()  # names of trackers that are told what becomes of trials
    cpus: float | None = None  # that Ray sets aside for each job; None: 1
    gpus: float | None = None  # likewise; None: 1 on a GPU
    address: str | None = None  # of a Ray cluster; None: RAY_ADDRESS, or one that is started here

    def __post_init__(self) -> None:
        kind, colon, number = self.device.partition(":")
        _require("device", kind, DEVICES)
        if colon and not (kind == "cuda" and number.isdecimal()):
            raise UsageError(f"device '{self.device}': only a cuda device has a number, as in cuda:1")
        _require("kernel", self.kernel, SWITCH)
        _require("compile", self.compiling, SWITCH)
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"jobs={self.jobs}: a whole number of at least 1 is needed")
        if self.timeout is not None and not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise UsageError(f"timeout {self.timeout:g}: give a number of seconds above 0")
        if self.memory is not None and self.memory < MIN_MEMORY:
            raise UsageError(f"memory {self.memory:,} bytes: give at least 512M, torch alone takes half of that")
        if self.executor == "inline" and (self.timeout or self.memory):
            raise UsageError("timeout and memory limit worker processes, and the executor 'inline' has none")
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


def parse_memory(text: str) -> int:
    """A number of bytes: 2G, 1.5GB, 800M or 2147483648."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"memory '{text}': give a size such as 2G or 800M")
    return int(float(found[1]) * (1 << _UNITS[found[2].upper()]))


def _require(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise UsageError(f"{name} '{value}' is not one of {', '.join(valid)}")


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
