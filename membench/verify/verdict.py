"""Verification: whether records say the truth, found by rebuilding their models from their weights."""

from __future__ import annotations

import json
import multiprocessing
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from membench.errors import UsageError
from membench.execute.isolated import start_server
from membench.interface.facts import weight_seed
from membench.interface.origin import BUILT_IN, compressed_bytes, files_of, files_of_package, origin_of_file
from membench.interface.registry import GROUP, NAME, Registry, Selection, split_target
from membench.measure.environment import describe_environment
from membench.measure.quantize import quantizations_of
from membench.plan.trial import Point
from membench.records import weights
from membench.records.record import Record
from membench.records.store import Entry, FromNewerMembench, Refused, Store, Unreadable, entry_of, read
from membench.verify.confinement import lacking
from membench.verify.processes import (
    Blueprint,
    Candidate,
    Case,
    Draw,
    Failed,
    Unchecked,
    run_builder,
    run_checks,
    run_model,
    run_task,
    words,
)

VERIFIED, FAILED, UNCHECKED = "verified", "failed", "cannot be checked"
TIMEOUT = 600.0  # seconds for one record: a model that never answers must cost its own row
PRELOADED = [
    "torch",
    "torch._dynamo",
    *(f"{__package__}.{name}" for name in ("checks", "model_process", "task_process")),
]


@dataclass(frozen=True)
class Verdict:
    """What became of one record."""

    path: Path
    outcome: str  # verified, failed or cannot be checked
    reason: str = ""
    entry: Entry | None = None  # the record, as it was verified; None when the file is no record
    metrics: dict[str, Any] = field(default_factory=dict)  # as measured here
    size: dict[str, Any] = field(default_factory=dict)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def record(self) -> Record | None:
        return self.entry.record if self.entry else None

    def as_json(self) -> dict[str, Any]:
        kept = {key: getattr(self, key) for key in ("outcome", "reason", "metrics", "size", "notes")}
        if self.entry is None:
            return {"file": str(self.path), **kept}
        record = self.entry.record
        told = {"id": record.id, "seed": record.seed, "recorded": record.metrics}
        return {"file": str(self.path), "sha256": self.entry.sha256, **told, **kept}


@dataclass(frozen=True)
class Unwritten:
    """A record and its weights as they would be in files, where a plugin could read what is not for it."""

    record: bytes
    weights: bytes
    turns: bytes = field(default=b"", repr=False)  # what the answers were turned by, if no seed gives the facts


def record_files(folder: Path) -> list[Path]:
    """UsageError unless this is a folder with something in it that may be a record."""
    if not folder.exists():
        raise UsageError(f"'{folder}' does not exist; a submission is made by: membench submit results/")
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is a file; name the folder of a submission, or of records with their weights")
    files = list(Store(folder).files())
    if not files:
        raise UsageError(f"there are no records in '{folder}'; make a submission with: membench submit results/")
    return files


def server() -> Any:
    """From which processes are forked that need not import torch or built-ins again."""
    context = multiprocessing.get_context("forkserver")
    built_in = [entry.module for entry in entry_points(group=GROUP) if entry.dist and entry.dist.name == BUILT_IN]
    start_server(context, [*PRELOADED, *built_in])
    return context


def verify(
    files: Sequence[Path],
    selection: Selection,
    jobs: int,
    timeout: float = TIMEOUT,
    finished: Callable[[Verdict], None] = lambda verdict: None,
    unwritten: Mapping[Path, Unwritten] | None = None,  # what is behind paths where no file is
) -> list[Verdict]:
    """A verdict for each file, in their order, some of them worked out side by side.

    Only built-ins are imported here; the plugins of the selection are imported by the processes of their models.
    """
    server()
    built_ins, given = Registry(selection.built_ins()), unwritten or {}
    verdicts: dict[Path, Verdict] = {}
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(verify_file, file, selection, timeout, built_ins, given.get(file)) for file in files]
        try:
            for done in as_completed(waiting):
                verdicts[done.result().path] = done.result()
                finished(done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():  # what they were waiting for
                process.kill()
            raise
    return [verdicts[file] for file in files]


def verify_file(
    path: Path,
    selection: Selection,
    timeout: float = TIMEOUT,
    built_ins: Registry | None = None,
    unwritten: Unwritten | None = None,
) -> Verdict:
    """Check one record: first what needs no model, then what rebuilt models answer."""
    entry = None
    try:
        entry = entry_of(unwritten.record, path) if unwritten else read(path)
        _check_identity(entry.record)
        known = built_ins or Registry(selection.built_ins())
        content, turns = _weights(entry.record, path, unwritten), unwritten.turns if unwritten else b""
        found = _check_model(_plan(entry.record, selection, known, content, turns), timeout)
        found["notes"] += _unconfined(entry.record, known)
    except FromNewerMembench as error:
        return Verdict(path, UNCHECKED, f"it {error}")
    except Refused as error:
        return Verdict(path, UNCHECKED, str(error))
    except Unreadable as error:
        return Verdict(path, FAILED, f"it cannot be read as a record: {error}")
    except Failed as error:
        return Verdict(path, FAILED, str(error), entry)
    except Unchecked as error:
        return Verdict(path, UNCHECKED, str(error), entry)
    except Exception as error:  # whatever a record makes go wrong costs this record alone
        return Verdict(path, UNCHECKED, words(error), entry)
    return Verdict(path, entry=entry, **found)


def _unconfined(record: Record, built_ins: Registry) -> list[str]:
    built_in = record.architecture["name"] in built_ins.architectures and record.task["name"] in built_ins.tasks
    missing = "" if built_in else lacking()
    return [f"its plugin could have looked for answers elsewhere: this machine has no {missing}"] if missing else []


def _check_identity(record: Record) -> None:
    if not record.complete:
        raise Unchecked(f"its trial did not succeed ({record.status})")
    for name in (record.architecture["name"], record.task["name"]):
        if not NAME.fullmatch(name):  # a path would be code to run
            raise Failed(f"{name!r} is not a name")
    if (identity := Point.of(record).id) != record.id:
        raise Failed(f"its id is {record.id}, but its contents have the id {identity}")


def _weights(record: Record, path: Path, unwritten: Unwritten | None) -> bytes:
    if not record.weights:
        raise Unchecked("it has no weights; keep them with: membench run --keep-weights")
    try:
        return (
            weights.checked(record.weights, path, unwritten.weights)
            if unwritten
            else weights.read(record.weights, path)
        )
    except ValueError as error:
        raise Failed(str(error)) from None


def is_here(environment: dict[str, Any]) -> bool:
    """Whether an environment computes the same digits as this one."""
    ours = describe_environment("cpu", 1, "")
    return all(environment.get(key) == ours[key] for key in ("torch", "numpy", "platform", "cpu", "device", "threads"))


def _check_model(planned: _Plan, timeout: float) -> dict[str, Any]:
    with _processes(*planned) as verdict:
        if not verdict.poll(timeout):
            raise Unchecked(f"its model gave no answer in {timeout:.0f} seconds")
        try:
            found: dict[str, Any] = json.loads(verdict.recv_bytes())
        except (EOFError, OSError):
            raise Unchecked("the process that checked it ended without an answer") from None
    return found


_Plan = tuple[Case, Draw | None, Blueprint, int, list[Candidate]]


def _plan(record: Record, selection: Selection, built_ins: Registry, content: bytes, turns: bytes) -> _Plan:
    """What each process is given.

    The one that builds as the trial did has no weights, and those that have the weights build from seeds that nobody
    could foresee: so that none can tell the seed of the facts, or pass learned numbers off as built ones.
    """
    name, config = record.architecture["name"], record.architecture["config"]
    blueprint = Blueprint(built_ins.selection if name in built_ins.architectures else selection, name, config)
    task = record.task["name"]
    draw = None if task in built_ins.tasks else Draw(selection, task, record.task["config"], record.seed)
    # two for each set of weights, and one for each set as it is rounded to fewer bits
    each = 2 + len(quantizations_of(record.metrics))
    candidates = [Candidate(blueprint, secrets.randbits(62)) for _ in weights.prefixes(content) for _ in range(each)]
    here, code = is_here(record.environment), _code_bytes(record, selection, built_ins)
    digests = tuple(str(origin_of_file(Path(split_target(one)[0])).code_sha256) for one in selection.files)
    case = Case(built_ins.selection, record.to_json(), content, here, turns, code, digests)
    return case, draw, blueprint, weight_seed(record.seed), candidates


def _code_bytes(record: Record, selection: Selection, built_ins: Registry) -> int | None:
    """Of the source of its architecture, read here and never said by it. All files that are given belong together."""
    name, distribution = record.architecture["name"], record.architecture.get("distribution")
    if name in built_ins.architectures:
        return built_ins.code_bytes(name)
    files = [file for target in selection.files for file in files_of(Path(split_target(target)[0]))]
    modules = [one.module for one in built_ins.plugins if one.module and one.distribution == distribution != BUILT_IN]
    files = files or [file for module in dict.fromkeys(modules) for file in files_of_package(module)]
    return compressed_bytes(dict.fromkeys(files)) if files else None


@contextmanager
def _processes(
    case: Case, draw: Draw | None, blueprint: Blueprint, built_from: int, candidates: Sequence[Candidate]
) -> Iterator[Connection]:
    """Those that check one record; all are killed at the end. Yields the pipe on which the outcome will arrive."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    builder, task = context.Pipe(), context.Pipe() if draw else None
    pipes = [context.Pipe() for _ in candidates]
    ends = [theirs, *builder, *(task or ()), *(end for pipe in pipes for end in pipe)]
    processes = [
        *(context.Process(target=run_model, args=(one, pipe[1])) for one, pipe in zip(candidates, pipes, strict=True)),
        context.Process(target=run_builder, args=(blueprint, built_from, builder[1])),
        *([context.Process(target=run_task, args=(draw, task[1]))] if task else []),
        context.Process(
            target=run_checks,
            args=(case, theirs, task[0] if task else None, builder[0], *(pipe[0] for pipe in pipes)),
        ),
    ]
    try:
        for process in processes:
            process.daemon = True
            process.start()
        for end in ends:
            end.close()  # so that whoever waits for a process that died gets EOF
        yield ours
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
        ours.close()
