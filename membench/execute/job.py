"""Job: some seeds of one point, as plain data; how trials become jobs, and what comes back of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from membench.engine.execution import Execution
from membench.engine.protocols.protocol import get_protocol
from membench.interface.registry import Selection
from membench.plan.trial import Point, Trial
from membench.records.record import Record


@dataclass(frozen=True)
class Job:
    """Some seeds of one point of a grid, as plain data."""

    point: Point
    seeds: tuple[int, ...]
    selection: Selection
    execution: Execution = field(default_factory=Execution)
    threads: int = 1
    probed: str | None = None  # scores of all probes, as JSON
    part: int = 0  # for a job without seeds: which of the protocol's probes it is
    attempt: int = 1


class Result(NamedTuple):
    """What one trial left: its record, and its weights as a safetensors file if they are to be kept."""

    record: Record
    weights: bytes | None = None

    def printing(self, output: str) -> Result:
        """The same with what was printed on the way in its trace."""
        if not output:
            return self
        return self._replace(record=replace(self.record, trace={**self.record.trace, "output": output}))


KEPT_OUTPUT = 4000  # letters of what a job printed, the last ones
REPLICAS = 5  # seeds trained together at most; fixed, so that a number does not depend on the number of cores


def make_jobs(trials: Sequence[Trial], selection: Selection, execution: Execution) -> list[Job]:
    """Seeds of one point together, in groups whose make-up depends on the trials alone."""
    by_point: dict[Point, list[int]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).append(trial.seed)
    return [
        Job(point, group, selection, execution) for point, seeds in by_point.items() for group in _groups(sorted(seeds))
    ]


def probes_first(jobs: Sequence[Job]) -> tuple[list[Job], dict[Point, list[Job]]]:
    """Jobs that can start now, and those that wait for the probes of their point."""
    ready: list[Job] = []
    waiting: dict[Point, list[Job]] = {}
    for job in jobs:
        probes = get_protocol(job.point.protocol, job.point.protocol_version).probes
        if not probes:
            ready.append(job)
            continue
        if job.point not in waiting:
            ready += [replace(job, seeds=(), part=part) for part in range(probes)]
        waiting.setdefault(job.point, []).append(job)
    return ready, waiting


def _groups(seeds: Sequence[int]) -> Iterator[tuple[int, ...]]:
    count = max(-(-len(seeds) // REPLICAS), min(2, len(seeds)))  # at least two, for two cores
    size = -(-len(seeds) // count)
    return (tuple(seeds[i : i + size]) for i in range(0, len(seeds), size))
