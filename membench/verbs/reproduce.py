"""`membench.reproduce`: an experiment of the paper, or of a file, from trials to laws and a verdict."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.run import Run
from membench.interface.registry import Registry
from membench.plan import experiment as experiments
from membench.plan.shard import Shard
from membench.records.store import Store
from membench.verbs.arguments import Paths, execution_of, load_registry, several

if TYPE_CHECKING:
    from membench.analysis.reproduce import PlannedExperiment, Reproduction

ALL = "all"
QUICK = "quick"


def reproduce(
    experiment: str,
    *,
    protocol: str | None = None,
    quick: bool = False,
    published: bool = False,
    seeds: int | None = None,
    metric: str | None = None,
    overlay: str | os.PathLike[str] | None = None,
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
) -> Reproduction:
    """Run one experiment and see whether its claim holds, as `membench reproduce` does; no figure is written.

    `experiment` is a name such as "e2" or the path of a TOML file. With `published`, nothing is trained: the records
    that came with membench are used.
    """
    if experiment == ALL:
        raise UsageError(f"name one experiment at a time; there are: {', '.join(experiments.names())}")
    registry = load_registry(plugins, block)
    execution = execution_of(
        (), device=device, kernel=kernel, compile=compile, jobs=jobs, executor=executor, timeout=timeout,
        memory=memory, address=address, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    execution = replace(execution, track=tuple(several(track)))
    (planned,) = prepare(
        registry, [experiment], protocol=protocol, quick=quick, published=published, seeds=seeds, metric=metric,
        overlay=Path(overlay) if overlay else None,
    )  # fmt: skip
    return conclude(planned, registry, execution, Path(out), published=published, show=progress)


def prepare(
    registry: Registry,
    names: Sequence[str],
    *,
    protocol: str | None,
    quick: bool,
    published: bool,
    seeds: int | None,
    overlay: Path | None,
    metric: str | None = None,
) -> list[PlannedExperiment]:
    """All mistakes are found here, before anything is trained."""
    from membench.analysis.reproduce import PlannedExperiment

    if quick and published:
        raise UsageError("--quick trains tiny models and --published trains none; choose one of them")
    if quick and protocol:
        raise UsageError(f"--quick has a protocol of its own; leave out --protocol {protocol}")
    chosen = experiments.names() if ALL in names else list(dict.fromkeys(names))
    if overlay and len(chosen) > 1:
        raise UsageError("--overlay draws on one figure; name one experiment")
    loaded = [experiments.load(name) for name in chosen]
    wanted = QUICK if quick else protocol
    return [
        PlannedExperiment.of(one, registry, protocol=wanted, seeds=seeds, metric=metric, overlay=overlay)
        for one in loaded
    ]


def conclude(
    planned: PlannedExperiment,
    registry: Registry,
    execution: Execution,
    out: Path,
    *,
    published: bool = False,
    show: bool = True,
) -> Reproduction:
    """From trials, or published records, to curves, laws and the verdict."""
    from membench.analysis.reproduce import Reproduction

    if published:
        from membench_leaderboard.published import PAPER, published_records

        records = planned.among(published_records(PAPER))
    else:
        store = Store(out)
        store.check()
        records = Run.of(planned.trials, store, registry, execution).carry_out(show)
    return Reproduction.of(planned, records, show=show)


def run_of(
    planned: Sequence[PlannedExperiment],
    registry: Registry,
    execution: Execution,
    out: Path,
    shard: Shard | None = None,
) -> Run:
    """All that several experiments would run, or one shard of it."""
    from membench.analysis.reproduce import distinct

    trials = distinct(trial for one in planned for trial in one.trials)
    return Run.of(trials if shard is None else shard.of(trials), Store(out), registry, execution)
