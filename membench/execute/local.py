"""The executor `local`: worker processes on this machine, one thread each, forked from a server that has torch."""

from __future__ import annotations

import functools
import json
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from membench.errors import Impossible
from membench.execute.executor import Ended, Measured, Message, Probed, Report
from membench.execute.isolated import Isolated
from membench.execute.job import Job, Result
from membench.execute.limits import Limits
from membench.execute.process_group import kill, memory_of
from membench.execute.worker import serve
from membench.records.record import Record

# torch is imported once, by the server that the workers are forked from
# torch's counter of operations imports torch._dynamo, which would take 0.8 s in every worker.
PRELOADED = ["torch", "torch._dynamo", serve.__module__, "membench.engine.workbench", "membench.measure.questions"]


@dataclass(frozen=True)
class Local:
    """At most `size` workers at a time, each on one job; a new one is started when one ends."""

    size: int
    limits: Limits = field(default_factory=Limits)

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        crew = _Crew(report, self.limits)
        try:
            while jobs or crew.workers:
                while jobs and len(crew.workers) < self.size:
                    crew.start(jobs.popleft())
                yield from crew.hear()
        finally:
            crew.dismiss()


@dataclass(eq=False)
class _Worker:
    """A process and its job."""

    job: Job
    process: Isolated
    started: float | None = None  # when it began with the job
    failure: str = ""  # why the job cannot be done, in its own words


@dataclass
class _Crew:
    """The workers that are at work."""

    report: Report
    limits: Limits
    workers: list[_Worker] = field(default_factory=list)

    def start(self, job: Job) -> None:
        self.workers.append(_Worker(job, Isolated.start(functools.partial(serve, job), PRELOADED)))

    def hear(self) -> Iterator[Message]:
        """What the workers say next; those that went beyond a limit are ended."""
        sources = {source: worker for worker in self.workers for source in worker.process.sources()}
        ready = wait(list(sources), self.limits.patience)
        for worker in {sources[source]: None for source in ready}:
            worker.process.drain()
            yield from self._next_message(worker)
        leaders = {worker.process.pid for worker in self.workers}
        memory = memory_of(leaders, self.limits.memory) if self.limits.memory else {}
        for worker in list(self.workers):
            held, trials = memory.get(worker.process.pid, 0), max(len(worker.job.seeds), 1)
            if reason := self.limits.exceeded(worker.started, held, trials):
                yield self._ended(worker, reason)

    def _next_message(self, worker: _Worker) -> Iterator[Message]:
        connection = worker.process.connection
        if connection.poll():
            try:
                yield from self._understand(worker, json.loads(connection.recv_bytes()))
            except (EOFError, OSError):
                yield self._died(worker)
            except (ValueError, LookupError, TypeError, RecursionError):
                yield self._ended(worker, "the worker process sent an invalid message")
        elif worker.process.has_ended:
            yield self._died(worker)

    def _understand(self, worker: _Worker, message: dict[str, Any]) -> Iterator[Message]:
        match message["kind"]:
            case "started":
                worker.started = time.monotonic()
            case "progress":
                self.report(worker.job, float(message["fraction"]), str(message["text"]))
            case "record":
                yield Measured(worker.job, _result(message, worker.process))
            case "probe":
                yield Probed(worker.job, message["scores"], float(message["seconds"]))
            case "failed":
                worker.failure = str(message["text"])
            case "done":
                yield self._ended(worker, worker.failure or "its worker process left no record")
            case "impossible":
                raise Impossible(str(message["text"]))
            case other:
                raise ValueError(other)

    def _died(self, worker: _Worker) -> Ended:
        """Without a word: killed, out of memory, or a crash in native code."""
        self.workers.remove(worker)
        return Ended(worker.job, f"the worker process {worker.process.end()}", worker.process.tail, died=True)

    def _ended(self, worker: _Worker, reason: str) -> Ended:
        self.workers.remove(worker)
        worker.process.end()
        return Ended(worker.job, reason, worker.process.tail)

    def dismiss(self) -> None:
        for worker in self.workers:
            kill(worker.process.pid)
        for worker in self.workers:
            worker.process.end()
        self.workers.clear()


def _result(message: dict[str, Any], process: Isolated) -> Result:
    """Weights follow their record as plain bytes."""
    weights = process.connection.recv_bytes() if message["weights"] else None
    return Result(Record.from_json(message["record"]), weights).printing(process.tail)
