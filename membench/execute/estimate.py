"""A grid in random order, and how long it will take, from a short calibration run."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.execute.executor import workers_of
from membench.interface.registry import Registry
from membench.plan.trial import Point, Trial
from membench.records.store import Store
from membench.temporary import temporary_folder

CALIBRATION_POINTS = 4
SHORT, LONG = 20, 100  # steps of the two calibration runs; their difference is free of what does not depend on steps
MIN_DIFFERENCE = 0.5  # seconds between the two, so that it is more than noise


def shuffled(trials: Sequence[Trial]) -> list[Trial]:
    """The points in an order that only the grid decides; seeds of a point stay together.

    At any time what is done is then a fair sample of the whole: the time that is left can be told
    from it, and so can the shape of the result.
    """
    by_point = _by_point(trials)
    points = sorted(by_point, key=lambda point: point.id)
    random.Random(len(points)).shuffle(points)
    return [trial for point in points for trial in by_point[point]]


def _by_point(trials: Sequence[Trial]) -> dict[Point, list[Trial]]:
    found: dict[Point, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.point, []).append(trial)
    return found


@dataclass(frozen=True)
class Estimate:
    """Seconds that a grid takes at most, and what its cheapest and dearest timed points take."""

    seconds: float
    points: int  # that were timed
    least: float
    most: float

    def __str__(self) -> str:
        each = f"one process needs {duration(self.least)} to {duration(self.most)} for a point"
        return f"at most about {duration(self.seconds)} ({each}; {self.points} were timed)"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def estimate(
    pending: Sequence[Trial],
    registry: Registry,
    execution: Execution,
    report: Callable[[float], None] = lambda fraction: None,
) -> Estimate:
    """Time some points, from the smallest to the largest, with few steps, and scale up.

    A protocol that may end early is taken to its end, so that this is an upper estimate.
    """
    points = sorted(_by_point(pending).values(), key=_bigness)
    if not points:
        return Estimate(0.0, 0, 0.0, 0.0)
    places = sorted({round(i * (len(points) - 1) / (CALIBRATION_POINTS - 1)) for i in range(CALIBRATION_POINTS)})
    with temporary_folder() as folder:
        clock = _Clock(folder, registry, replace(execution, jobs=1))
        clock.seconds(points[0])  # starts torch and compiles kernels, which happens only once
        costs = []
        for number, place in enumerate(places):
            costs.append(clock.cost(points[place]))
            report((number + 1) / len(places))
    total = float(np.interp(range(len(points)), places, costs).sum())
    return Estimate(total / min(workers_of(execution), len(pending)), len(places), min(costs), max(costs))


def _bigness(trials: Sequence[Trial]) -> float:
    """Grows with the cost of a point: the logarithm of the product of all its numbers."""
    values = [*asdict(trials[0].config).values(), *asdict(trials[0].task_config).values()]
    return sum(math.log(value) for value in values if type(value) in (int, float) and value > 0)


@dataclass
class _Clock:
    folder: Path
    registry: Registry
    execution: Execution
    runs: int = 0

    def cost(self, trials: Sequence[Trial]) -> float:
        """Seconds of one worker for all seeds of a point."""
        protocol = trials[0].protocol
        if protocol.work is None:  # it does not train: what it takes is soon known
            return self.seconds(trials)
        steps = protocol.work(trials[0].protocol_config, len(trials)) / len(trials)
        short, many = self.seconds(trials), LONG
        long = self.seconds(trials, many)
        while long - short < MIN_DIFFERENCE and many < steps:
            many *= 4
            long = self.seconds(trials, many)
        each = max(long - short, 0.0) / (many - SHORT)  # of one step of all seeds
        return short + each * max(steps - SHORT, 0)

    def seconds(self, trials: Sequence[Trial], steps: int = SHORT) -> float:
        protocol = trials[0].protocol
        if protocol.shortened is not None:
            config = protocol.shortened(trials[0].protocol_config, steps)
            trials = [replace(trial, protocol_config=config) for trial in trials]
        self.runs += 1
        started = time.perf_counter()
        execute(trials, Store(self.folder / str(self.runs)), self.registry, self.execution)
        return time.perf_counter() - started
