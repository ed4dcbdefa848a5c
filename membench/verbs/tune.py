"""`membench.tune`: the shape that holds most within a budget, and what it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from membench.engine.execution import Execution
from membench.engine.protocols.protocol import get_protocol
from membench.errors import UsageError
from membench.execute.run import Run, require_bottleneck
from membench.interface.options import assignments, expand
from membench.interface.registry import Registry
from membench.plan.budget import DoesNotFit
from membench.plan.request import Request, check_fit, to_tune
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store
from membench.results import Results
from membench.shape_search.search import SHAPES, ShapeSearch, Subject, search_shapes
from membench.verbs.arguments import (
    Model,
    Options,
    Paths,
    Seeds,
    budgets_of,
    execution_of,
    load_registry,
    models_of,
    say,
    seeds_of,
    several,
    texts_of,
)


@dataclass(frozen=True)
class TuneResult:
    """What was searched, one entry for each architecture, task and budget; and what the best shapes hold."""

    searches: Sequence[ShapeSearch]
    results: Results


def tune(
    model: Model | Sequence[Model],
    task: str | Sequence[str],
    budget: str | int | Iterable[str | int],
    *,
    M: Options = None,
    T: Options = None,
    P: Options = None,
    protocol: str = "converged",
    seeds: Seeds = 5,
    count: str = "all",
    shapes: int = SHAPES,
    floor: bool = False,
    keep_weights: bool = False,
    out: str | os.PathLike[str] = "results",
    search_out: str | os.PathLike[str] = "tuning",
    device: str = "cpu",
    kernel: str = "auto",
    compile: str = "auto",
    jobs: int | None = None,
    executor: str | None = None,
    timeout: float | None = None,
    memory: str | int | None = None,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    plugins: Paths = (),
    block: Sequence[str] = (),
    progress: bool = True,
) -> TuneResult:
    """Find the shape of an architecture that holds most within a budget and measure it, as `membench tune` does.

    M are options that stay as they are. The other words are those of `membench.run`. What comes back has `searches`,
    whose `best` is a shape, and `results`, the trials of the best shapes.
    """
    registry = load_registry(plugins, block)
    execution = execution_of(
        model, device=device, kernel=kernel, compile=compile, jobs=jobs, executor=executor, timeout=timeout,
        memory=memory, address=address, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    request = Request(
        models=models_of(model, registry),
        tasks=several(task),
        model_options=texts_of(M),
        task_options=texts_of(T),
        protocol=protocol,
        protocol_options=texts_of(P),
        seeds=seeds_of(seeds),
        budgets=budgets_of(budget, count),
    )
    execution = replace(execution, floor=floor, keep_weights=keep_weights)
    return search_and_measure(
        registry, request, execution, Path(out), Path(search_out), shapes=shapes, show=progress
    )  # fmt: skip


def search_and_measure(
    registry: Registry, request: Request, execution: Execution, out: Path, search_out: Path, *, shapes: int, show: bool
) -> TuneResult:
    """One search after the other; then the best shapes are measured on the seeds that were asked for."""
    if shapes < 1:
        raise UsageError(f"--shapes {shapes}: give a whole number of at least 1")
    store, search_store = Store(out), Store(search_out)
    results, searched = out.resolve(), search_out.resolve()
    if results in (searched, *searched.parents) or searched in results.parents:
        raise UsageError(f"--search-out {search_out}: the search needs a folder apart from '{out}', where results go")
    subjects = [
        Subject(architecture, task, task_config, budget, fixed)
        for architecture, task, task_config, fixed in to_tune(registry, request)
        for budget in request.budgets
    ]
    if execution.floor:
        require_bottleneck(subject.architecture for subject in subjects)
    store.check()
    search_store.check()
    searches: list[ShapeSearch] = []
    reasons: list[str] = []
    for subject in subjects:
        try:
            searches.append(search_shapes(subject, search_store, registry, execution, shapes=shapes, show=show))
        except DoesNotFit as error:
            reasons.append(f"{subject.task.name}: {error}")
    if not searches:
        raise UsageError("no architecture fits the budget: " + "; ".join(dict.fromkeys(reasons)))
    for reason in reasons:
        say(f"left out: {reason}")
    pairs = [(trial, search) for search in searches for trial in _trials(search, request)]
    chosen = {(trial.point, trial.seed): (trial, search) for trial, search in pairs}  # two budgets may share a shape
    trials = [trial for trial, _ in chosen.values()]
    check_fit(trials)
    run = Run.of(trials, store, registry, execution)
    found = zip(chosen.values(), run.carry_out(show), strict=True)
    records = [_stamped(store, trial, record, search) for (trial, search), record in found]
    return TuneResult(searches, Results(records, folder=store.root, ran=len(run.pending)))


def _trials(search: ShapeSearch, request: Request) -> list[Trial]:
    subject, protocol = search.subject, get_protocol(request.protocol)
    hint = "see the options with: membench run --help"
    setting: Any = expand(protocol.config, assignments(request.protocol_options), protocol.name, hint)[0]
    return [
        Trial(
            subject.architecture, search.best.config, subject.task, subject.task_config, protocol, setting, seed
        )
        for seed in request.seeds
    ]  # fmt: skip


def _stamped(store: Store, trial: Trial, record: Record, search: ShapeSearch) -> Record:
    """With how its shape was chosen; a record that was there before is rewritten with that, and its numbers stay."""
    if not record.complete or record.run.get("tuned") == search.provenance:
        return record
    told = replace(record, run={**record.run, "tuned": search.provenance})
    store.write(trial, told)
    return told
