"""The executor `local`: worker processes on this machine, one thread each, forked from a server that has torch."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from membench.errors import Impossible
from membench.execute.executor import Ended, Measured, Message, Probed, Report
from membench.execute.job import KEPT_OUTPUT, Job, Result
from membench.execute.limits import Limits
from membench.execute.process_group import kill, memory_of
from membench.execute.worker import serve
from membench.records.record import Record
from membench.threads import ONE_THREAD

JOIN_SECONDS = 5.0  # for a process that was killed; more only helps one that the system itself cannot end


@dataclass(frozen=True)
class Local:
    """At most `size` workers at a time, each on one job; a new one is started when one ends."""

    size: int
    limits: Limits = field(default_factory=Limits)

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        crew = _Crew(report, self.limits)
        context = multiprocessing.get_context("forkserver")
        # torch is imported once, by the server that the workers are forked from
        start_server(context, ["torch", serve.__module__, "membench.engine.workbench"])
        try:
            while jobs or crew.workers:
                while jobs and len(crew.workers) < self.size:
                    crew.start(context, jobs.popleft())
                yield from crew.hear()
        finally:
            crew.dismiss()


def start_server(context: Any, preload: list[str]) -> None:
    """Start the server that workers are forked from, deaf to Ctrl-C: that is for us, and we end the workers."""
    context.set_forkserver_preload(preload)
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may change what a signal does; the server starts when it is needed
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with environment(ONE_THREAD):
            forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def environment(defaults: dict[str, str]) -> Iterator[None]:
    """For what is started here; a program that merely uses membench keeps its own."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


@contextmanager
def _main_hidden() -> Iterator[None]:
    """A new process would run the script of this one again; a worker needs nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass(eq=False)
class _Worker:
    """A process and the three pipes that connect it with us."""

    job: Job
    process: BaseProcess
    connection: Connection
    output: Connection
    lifeline: Connection  # nothing is sent through it: that it is open says that we are here
    started: float | None = None  # when it began with the job
    failure: str = ""  # why the job cannot be done, in its own words
    printed: bytes = b""

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    @property
    def tail(self) -> str:
        """The end of what it printed."""
        return self.printed.decode(errors="replace")[-KEPT_OUTPUT:]

    def sources(self) -> list[Any]:
        return [self.connection, self.process.sentinel, *([] if self.output.closed else [self.output])]

    def drain(self) -> None:
        """Take what was printed, so that printing never waits for us for long."""
        while not self.output.closed and self.output.poll():
            content = os.read(self.output.fileno(), 1 << 16)
            self.printed = (self.printed + content)[-4 * KEPT_OUTPUT :]  # a letter has at most four bytes
            if not content:
                self.output.close()
            if len(content) < 1 << 16:
                return

    def end(self) -> int | None:
        """With all that it started. Its exit code; None if it will not go away."""
        kill(self.pid)
        self.process.kill()
        self.process.join(JOIN_SECONDS)
        self.drain()
        for pipe in (self.connection, self.output, self.lifeline):
            pipe.close()
        return self.process.exitcode


@dataclass
class _Crew:
    """The workers that are at work."""

    report: Report
    limits: Limits
    workers: list[_Worker] = field(default_factory=list)

    def start(self, context: Any, job: Job) -> None:
        pipes = [context.Pipe(duplex=False) for _ in range(3)]
        connection, output, (theirs, lifeline) = *pipes[:2], pipes[2]
        process = context.Process(target=serve, args=(job, connection[1], output[1], theirs), daemon=True)
        with _main_hidden(), environment(ONE_THREAD):  # the server may have to be started first
            process.start()
        for pipe in (connection[1], output[1], theirs):
            pipe.close()
        self.workers.append(_Worker(job, process, connection[0], output[0], lifeline))

    def hear(self) -> Iterator[Message]:
        """What the workers say next; those that went beyond a limit are ended."""
        sources = {source: worker for worker in self.workers for source in worker.sources()}
        ready = wait(list(sources), self.limits.patience)
        for worker in {sources[source]: None for source in ready}:
            worker.drain()
            yield from self._next_message(worker)
        leaders = {worker.pid for worker in self.workers}
        memory = memory_of(leaders, self.limits.memory) if self.limits.memory else {}
        for worker in list(self.workers):
            if reason := self.limits.exceeded(worker.job, worker.started, memory.get(worker.pid, 0)):
                yield self._ended(worker, reason)

    def _next_message(self, worker: _Worker) -> Iterator[Message]:
        if worker.connection.poll():
            try:
                yield from self._understand(worker, json.loads(worker.connection.recv_bytes()))
            except (EOFError, OSError):
                yield self._died(worker)
            except (ValueError, LookupError, TypeError, RecursionError):
                yield self._ended(worker, "the worker process sent what is not a message")
        elif worker.process.exitcode is not None:
            yield self._died(worker)

    def _understand(self, worker: _Worker, message: dict[str, Any]) -> Iterator[Message]:
        match message["kind"]:
            case "started":
                worker.started = time.monotonic()
            case "progress":
                self.report(worker.job, float(message["fraction"]), str(message["text"]))
            case "record":
                yield Measured(worker.job, _result(message, worker.connection).printing(worker.tail))
            case "probe":
                yield Probed(worker.job, message["scores"])
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
        before = worker.process.exitcode
        self.workers.remove(worker)
        after = worker.end()
        return Ended(worker.job, _how_it_ended(after if before is None else before), worker.tail, died=True)

    def _ended(self, worker: _Worker, reason: str) -> Ended:
        self.workers.remove(worker)
        worker.end()
        return Ended(worker.job, reason, worker.tail)

    def dismiss(self) -> None:
        for worker in self.workers:
            kill(worker.pid)
        for worker in self.workers:
            worker.end()
        self.workers.clear()


def _result(message: dict[str, Any], connection: Connection) -> Result:
    """Weights follow their record as plain bytes."""
    return Result(Record.from_json(message["record"]), connection.recv_bytes() if message["weights"] else None)


def _how_it_ended(exit_code: int | None) -> str:
    how = f"was killed by signal {-exit_code}" if exit_code and exit_code < 0 else f"ended with code {exit_code}"
    return f"the worker process {how}"
