"""`membench.capacity`: how many facts one model memorises, with an interval."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from membench.capacity_search.capacity import Capacity
from membench.capacity_search.search import Levels, check_levels
from membench.capacity_search.subject import Subject
from membench.engine.execution import Execution
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.records.store import Store
from membench.verbs.arguments import (
    Model,
    Options,
    Paths,
    Seeds,
    execution_of,
    load_registry,
    model_of,
    seeds_of,
    texts_of,
)


def capacity(
    model: Model,
    task: str,
    *,
    M: Options = None,
    T: Options = None,
    P: Options = None,
    protocol: str = "converged",
    seeds: Seeds = 5,
    vary: str = "T0",
    at: float | str | Iterable[float] = (1.0, 0.99),
    resolution: float = 0.1,
    largest: int | None = None,
    out: str | os.PathLike[str] = "results",
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
) -> Capacity:
    """Find how many facts one model memorises, as `membench capacity` does.

    `threshold` of what comes back is the number that half of the seeds memorise wholly, with its interval;
    `thresholds` has one for each accuracy in `at`, which may also be a text such as "recall@5=0.99". The other words
    are those of `membench.run`. A trial that fails is a PluginError, because nothing can be searched without it.
    """
    registry = load_registry(plugins, block)
    execution = execution_of(
        model, device=device, kernel=kernel, compile=compile, jobs=jobs, executor=executor, timeout=timeout,
        memory=memory, address=address, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    request = Request(
        models=[model_of(model, registry)],
        tasks=[task],
        model_options=texts_of(M),
        task_options=texts_of(T),
        protocol=protocol,
        protocol_options=texts_of(P),
        seeds=seeds_of(seeds),
    )
    if isinstance(at, str):
        levels = Levels.parse(at)
    else:
        levels = Levels(check_levels([at] if isinstance(at, (int, float)) else at))
    return find(
        registry, request, execution, Path(out), vary=vary, levels=levels, resolution=resolution, largest=largest,
        show=progress,
    )  # fmt: skip


def find(
    registry: Registry,
    request: Request,
    execution: Execution,
    out: Path,
    *,
    vary: str,
    levels: Levels,
    resolution: float,
    largest: int | None,
    show: bool = True,
) -> Capacity:
    """The search, with all that can be wrong with what was asked for found before it starts."""
    subject = Subject.of(plan(registry, request), vary, request.task_options, levels.metric)
    store = Store(out)
    store.check()
    return Capacity.find(
        subject, levels.values, resolution=resolution, largest=largest, store=store, registry=registry,
        execution=execution, show=show,
    )  # fmt: skip
