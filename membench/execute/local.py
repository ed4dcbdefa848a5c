"""The executor `local`: worker processes on this machine, one thread each, forked from a server that has torch."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from membench.errors import MembenchError
from membench.execute.executor import Ended, Measured, Message, Probed, Report
from membench.execute.job import Job, Result
from membench.execute.worker import serve
from membench.records.record import Record
from membench.threads import ONE_THREAD


@dataclass(frozen=True)
class Local:
    """At most `size` workers at a time, each on one job; a new one is started when one ends."""

    size: int

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        crew = _Crew(report)
        context = multiprocessing.get_context("forkserver")
        # torch is imported once, by the server that the workers are forked from
        start_server(context, ["torch", serve.__module__, "membench.engine.workbench"])
        try:
            while jobs or crew.busy:
                while jobs and len(crew.busy) < self.size:
                    crew.start(context, jobs.popleft())
                for connection in wait(list(crew.busy)):
                    assert isinstance(connection, Connection)
                    yield from crew.hear(connection)
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


@dataclass
class _Crew:
    """The workers by the connection that each of them talks through."""

    report: Report
    busy: dict[Connection, tuple[Job, BaseProcess]] = field(default_factory=dict)

    def start(self, context: Any, job: Job) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=serve, args=(job, theirs), daemon=True)
        with _main_hidden(), environment(ONE_THREAD):  # the server may have to be started first
            process.start()
        theirs.close()
        self.busy[ours] = job, process

    def hear(self, connection: Connection) -> Iterator[Message]:
        job, process = self.busy[connection]
        try:
            message = json.loads(connection.recv_bytes())
            if message["kind"] == "record":
                yield Measured(job, _result(message, connection))
                return
        except (EOFError, OSError):
            process.join()
            connection.close()
            del self.busy[connection]
            yield Ended(job, _how_it_ended(process.exitcode))
            return
        if message["kind"] == "progress":
            self.report(job, message["fraction"], message["text"])
        elif message["kind"] == "probe":
            yield Probed(job, message["scores"])
        else:
            error = MembenchError(message["text"])
            error.exit_code = message["exit_code"]
            raise error

    def dismiss(self) -> None:
        for _, process in self.busy.values():
            process.kill()
        for connection, (_, process) in self.busy.items():
            process.join()
            connection.close()
        self.busy.clear()


def _result(message: dict[str, Any], connection: Connection) -> Result:
    """Weights follow their record as plain bytes."""
    return Result(Record.from_json(message["record"]), connection.recv_bytes() if message["weights"] else None)


def _how_it_ended(exit_code: int | None) -> str:
    """Of a worker that died without a word: killed, out of memory, or a crash in native code."""
    how = f"was killed by signal {-exit_code}" if exit_code and exit_code < 0 else f"ended with code {exit_code}"
    return f"the worker process {how}"
