"""`membench.run`: trials in, records out, and results to look at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from membench.engine.execution import Execution
from membench.execute.estimate import Estimate, estimate, shuffled
from membench.execute.progress import bar
from membench.execute.run import Run
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.shard import Shard
from membench.records.record import Record
from membench.records.store import Store
from membench.results import Results
from membench.theory.limits import broken_limits
from membench.verbs.arguments import (
    Model,
    Options,
    Paths,
    Seeds,
    budgets_of,
    execution_of,
    load_registry,
    models_of,
    quantizations,
    say,
    seeds_of,
    several,
    texts_of,
)


def run(
    model: Model | Sequence[Model],
    task: str | Sequence[str],
    *,
    M: Options = None,
    T: Options = None,
    P: Options = None,
    protocol: str = "converged",
    seeds: Seeds = 5,
    budget: str | int | Iterable[str | int] | None = None,
    count: str = "all",
    floor: bool = False,
    keep_weights: bool = False,
    quantize: str | Sequence[str] = (),
    overwrite: bool = False,
    shuffle: bool = False,
    shard: str | None = None,
    out: str | os.PathLike[str] = "results",
    device: str = "cpu",
    kernel: str = "auto",
    compile: str = "auto",
    jobs: int | None = None,
    executor: str | None = None,
    timeout: float | None = None,
    memory: str | int | None = None,
    track: str | Sequence[str] = (),
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    plugins: Paths = (),
    block: Sequence[str] = (),
    progress: bool = True,
) -> Results:
    """Measure how much architectures memorise of tasks, as `membench run` does.

    `model` is a name, `path.py:Class`, or a class or function `(vocab, length, answers, **options)` that gives a
    module; a class or function runs in this process. M, T and P are the options of model, task and protocol: single
    values, lists, ranges, or texts as on the command line. Finished trials are found again below `out`. A trial that
    fails is in `failed` of what comes back; a name or value that cannot be used is a UsageError.
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
    execution = replace(
        execution, floor=floor, keep_weights=keep_weights, quantize=quantizations(quantize), track=tuple(several(track))
    )
    part = Shard.parse(shard) if shard else None
    planned = prepare(registry, request, execution, Path(out), overwrite=overwrite, shuffle=shuffle, shard=part)
    return carry_out(planned, show=progress)


def prepare(
    registry: Registry,
    request: Request,
    execution: Execution,
    out: Path,
    *,
    overwrite: bool = False,
    shuffle: bool = False,
    shard: Shard | None = None,
) -> Run:
    """All mistakes are found here, before anything runs.

    Shuffled, what is done at any time is a fair sample of the whole. Of a shard, only its trials are there.
    """
    trials = plan(registry, request, lambda reason: say(f"left out: {reason}"))
    trials = trials if shard is None else shard.of(trials)
    return Run.of(shuffled(trials) if shuffle else trials, Store(out), registry, execution, overwrite=overwrite)


def carry_out(planned: Run, *, show: bool = True) -> Results:
    """Run what has no record yet, and give the records of all."""
    planned.store.check()
    records = planned.carry_out(show)
    _warn_of_the_impossible(records)
    return Results(records, folder=planned.store.root, ran=len(planned.pending))


def _warn_of_the_impossible(records: Sequence[Record]) -> None:
    """A model that does better than is possible knows something that is not in its weights, or the bound is wrong."""
    broken = [
        sentence
        for record in records
        for sentence in broken_limits(record.metrics, record.bounds, record.size.get("learned_bits"))[:1]
    ]
    if broken:
        say(f"{len(broken)} of {len(records)} trials are too good to be true, and would fail verification: {broken[0]}")


def estimate_of(planned: Run) -> Estimate:
    """How long it takes at most; the calibration behind that takes some seconds itself."""
    with bar("timing some trials") as shown:
        return estimate(planned.pending, planned.registry, planned.execution, shown.update)
