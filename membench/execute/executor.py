"""Executor: where jobs run. One file here for each kind; all of them know nothing of folders or trials."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.job import Job, Result
from membench.interface.registry import Registry


@dataclass(frozen=True)
class Measured:
    """One seed of a job has its record."""

    job: Job
    result: Result


@dataclass(frozen=True)
class Probed:
    """A probe has its scores; None when it failed."""

    job: Job
    scores: list[float] | None
    seconds: float = 0.0  # of a processor


@dataclass(frozen=True)
class Ended:
    """Nothing more will come of a job. `reason` counts for the seeds that left no record."""

    job: Job
    reason: str = ""
    output: str = ""  # the end of what was printed
    died: bool = False  # without a word, so that another try may go better


Message = Measured | Probed | Ended
Report = Callable[[Job, float, str], None]  # a job, the fraction of it that is done, and a few words


class Executor(Protocol):
    """Runs jobs somewhere, and hands over what they say as it comes."""

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        """Take jobs from the left until there are none and none is running.

        The caller adds jobs while it reads: what waits for probes. Closing the generator ends all
        that still runs. A job that dies costs its own trials; Impossible stops everything.
        """


def _local(execution: Execution, registry: Registry) -> Executor:
    from membench.execute.limits import Limits
    from membench.execute.local import Local

    return Local(execution.workers, Limits(execution.timeout, execution.memory))


def _inline(execution: Execution, registry: Registry) -> Executor:
    """The only one that can use a registry that holds a class of this process."""
    from membench.execute.inline import Inline

    return Inline(registry)


def _ray(execution: Execution, registry: Registry) -> Executor:
    """Of the extra [ray]."""
    from membench.execute.ray import Ray

    return Ray(execution, registry)


# By the word of --executor; each is imported when it is asked for.
EXECUTORS: dict[str, Callable[[Execution, Registry], Executor]] = {"local": _local, "inline": _inline, "ray": _ray}


def check_executor(name: str) -> str:
    """The name again. UsageError when no executor has it."""
    if name not in EXECUTORS:
        raise UsageError(f"executor '{name}' is not one of {', '.join(EXECUTORS)}")
    return name


def workers_of(execution: Execution) -> int:
    """How many jobs run at a time; of a Ray cluster only its nodes know."""
    if execution.executor != "ray":
        return execution.workers
    from membench.execute.ray import workers

    return workers(execution)


def executor_of(execution: Execution, registry: Registry) -> Executor:
    return EXECUTORS[check_executor(execution.executor)](execution, registry)
