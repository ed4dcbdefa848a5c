"""Job: some seeds of one point, as plain data; how trials become jobs, and what comes back of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from membench.engine.execution import Execution
from membench.engine.protocols.protocol import get_protocol
from membench.interface.registry import Selection
from membench.plan.groups import groups
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
    probe_seconds: float = 0.0  # of a processor, that all of them took
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


def make_jobs(trials: Sequence[Trial], selection: Selection, execution: Execution) -> list[Job]:
    """A job for each group of seeds."""
    return [Job(point, seeds, selection, execution) for point, seeds in groups(trials)]


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
