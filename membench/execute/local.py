"""Trials to records: worker processes, one thread each, and what is finished is kept whatever happens."""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from membench.engine.protocols.protocol import get_protocol
from membench.errors import MembenchError
from membench.execute.execution import Execution, Watcher
from membench.execute.job import Job, make_jobs, probes_first
from membench.execute.worker import serve
from membench.interface.registry import Selection
from membench.plan.trial import Point, Trial
from membench.records.record import Record
from membench.records.store import Store


def execute(
    trials: Sequence[Trial], store: Store, selection: Selection, options: Execution, watcher: Watcher | None = None
) -> list[Record]:
    """Run the trials and write each record as soon as its job ends. A worker that dies costs its own trials."""
    by_key = {(trial.point, trial.seed): trial for trial in trials}
    jobs = make_jobs(trials, selection, options)
    if options.keep_weights:
        jobs = [replace(job, weights=str(store.folder(job.point).resolve())) for job in jobs]
    crew = _Crew(jobs, options.workers, watcher or Watcher())
    records: list[Record] = []
    try:
        for job, record in crew.work():
            trial = by_key[job.point, record.seed]
            store.write(trial, record)
            crew.watcher.finished(trial, record)
            records.append(record)
    finally:
        crew.dismiss()
    return records


def start_server(context: Any, preload: list[str]) -> None:
    """Start the server that workers are forked from, deaf to Ctrl-C: that is for us, and we end the workers."""
    context.set_forkserver_preload(preload)
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may change what a signal does; the server starts when it is needed
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class _Worker:
    job: Job
    process: BaseProcess
    missing: set[int]  # seeds without a record yet
    fraction: float = 0.0
    scores: list[float] | None = None  # what a probe found


@dataclass
class _Crew:
    """The workers, each on one job; a new one is started when one ends."""

    jobs: Sequence[Job]
    size: int
    watcher: Watcher
    busy: dict[Connection, _Worker] = field(default_factory=dict)
    done: int = 0
    text: str = ""  # the latest words of any worker
    later: dict[Point, list[Job]] = field(default_factory=dict)  # jobs that wait for probes
    probed: dict[Point, dict[int, list[float] | None]] = field(default_factory=dict)

    def work(self) -> Iterator[tuple[Job, Record]]:
        ready, self.later = probes_first(self.jobs)
        waiting = deque(ready)
        total = len(waiting) + sum(map(len, self.later.values()))
        context = multiprocessing.get_context("forkserver")
        # torch is imported once, by the server that the workers are forked from
        start_server(context, ["torch", serve.__module__, "membench.engine.workbench"])
        while waiting or self.busy:
            while waiting and len(self.busy) < self.size:
                self._start(context, waiting.popleft())
            for connection in wait(list(self.busy)):
                assert isinstance(connection, Connection)
                worker = self.busy[connection]
                for record in self._hear(connection, worker, waiting):
                    yield worker.job, record
            fraction = (self.done + sum(worker.fraction for worker in self.busy.values())) / total
            self.watcher.progress(fraction, self.text)

    def _start(self, context: Any, job: Job) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=serve, args=(job, theirs), daemon=True)
        process.start()
        theirs.close()
        self.busy[ours] = _Worker(job, process, set(job.seeds))

    def _hear(self, connection: Connection, worker: _Worker, waiting: deque[Job]) -> Iterator[Record]:
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            yield from self._ended(connection, worker)
            if not worker.job.seeds:
                waiting.extendleft(reversed(self._after_probe(worker)))
            return
        if message["kind"] == "progress":
            worker.fraction, self.text = message["fraction"], message["text"]
        elif message["kind"] == "error":
            error = MembenchError(message["text"])
            error.exit_code = message["exit_code"]
            raise error
        elif message["kind"] == "probe":
            worker.scores = message["scores"]
        else:
            record = Record.from_json(message["record"])
            worker.missing.discard(record.seed)
            yield record

    def _after_probe(self, worker: _Worker) -> list[Job]:
        """The jobs of a point once its last probe has ended; without scores each of them probes for itself."""
        point = worker.job.point
        parts = self.probed.setdefault(point, {})
        parts[worker.job.part] = worker.scores
        if len(parts) < get_protocol(point.protocol).probes:
            return []
        found = [parts[part] for part in sorted(parts)]
        text = None if None in found else json.dumps(found)
        return [replace(job, probed=text) for job in self.later.pop(point)]

    def _ended(self, connection: Connection, worker: _Worker) -> Iterator[Record]:
        worker.process.join()
        connection.close()
        del self.busy[connection]
        self.done += 1
        for seed in sorted(worker.missing):
            yield _lost(worker.job, seed, worker.process.exitcode)

    def dismiss(self) -> None:
        for worker in self.busy.values():
            worker.process.kill()
        for connection, worker in self.busy.items():
            worker.process.join()
            connection.close()
        self.busy.clear()


def _lost(job: Job, seed: int, exit_code: int | None) -> Record:
    """The record of a trial whose worker died without a word: killed, out of memory, or a crash in native code."""
    point = job.point
    how = f"was killed by signal {-exit_code}" if exit_code and exit_code < 0 else f"ended with code {exit_code}"
    return Record(
        id=point.id,
        seed=seed,
        status="failed",
        architecture={"name": point.architecture, "config": json.loads(point.config)},
        task={"name": point.task, "version": point.task_version, "config": json.loads(point.task_config)},
        protocol={
            "name": point.protocol,
            "version": point.protocol_version,
            "config": json.loads(point.protocol_config),
        },
        error=f"the worker process {how}",
    )
