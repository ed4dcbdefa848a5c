"""`membench sweep`: a grid of trials in random order, with an estimate of the time it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from membench.commands.common import json_option, load_registry, plugin_options, print_json
from membench.commands.execution import carry_out, execution_options, out_option, request_options
from membench.commands.run import fail_if_any, show
from membench.engine.execution import Execution
from membench.execute.estimate import Estimate, estimate, shuffled
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records.store import Store


@click.command()
@request_options
@execution_options
@out_option
@click.option("--dry-run", is_flag=True, help="Say how many trials would run and how long they take, and stop.")
@json_option
@plugin_options
def sweep(
    request: Request,
    execution: Execution,
    out: Path,
    dry_run: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Measure a grid of models and tasks, in random order.

    As `membench run`, for grids that take long: what is done at any time is a fair sample of the
    whole, so that the time left is told well and a first plot shows the shape. A trial that fails
    does not stop it, and the same command continues.

    \b
    membench sweep --model aot --task bigram -T N=50 -M d=10 -M d_h=10 -M H=1:31:5 --seeds 5
    membench sweep --model aot --task bigram -M d=7,10,13 -M H=1:31:5 --dry-run
    """
    registry = load_registry(files, block)
    trials = shuffled(plan(registry, request))
    store = Store(out)
    if not dry_run:
        store.check()
    pending = [trial for trial in trials if store.find(trial) is None]
    if dry_run:
        announce(len(trials), pending, registry, execution, as_json)
        return
    records = carry_out(trials, store, registry, execution, pending)
    show(records, store, len(pending), as_json)
    fail_if_any(records)


def announce(
    total: int, pending: Sequence[Trial], registry: Registry, execution: Execution, as_json: bool = False
) -> None:
    """How much is to be done and how long it takes; the calibration behind that takes some seconds itself."""
    with Progress(console=Console(stderr=True), disable=not Console(stderr=True).is_terminal, transient=True) as bar:
        task = bar.add_task("timing some trials", total=1.0)
        found = estimate(pending, registry, execution, lambda fraction: bar.update(task, completed=fraction))
    if as_json:
        print_json({"trials": total, "pending": len(pending), **asdict(found)})
        return
    points = len({trial.point for trial in pending})
    click.echo(f"{total} trials, {total - len(pending)} done, {len(pending)} to run at {points} points of the grid")
    if pending:
        click.echo(f"{in_words(found)}, with {execution.workers} worker process(es)")


def in_words(found: Estimate) -> str:
    each = f"one process needs {_duration(found.least)} to {_duration(found.most)} for a point"
    return f"at most about {_duration(found.seconds)} ({each}; {found.points} were timed)"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
