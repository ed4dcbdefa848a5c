"""`membench run`: measure architectures on tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from membench.commands.common import (
    console,
    json_option,
    load_registry,
    parse_seeds,
    plugin_options,
    print_json,
)
from membench.engine.protocols import PROTOCOLS
from membench.errors import PluginError, UsageError
from membench.execute import Execution, Watcher, execute
from membench.options import options_of
from membench.plan import Request, plan
from membench.records import Record, Store
from membench.trial import Trial

DEVICES = ("cpu", "cuda", "mps")


def _protocol_help() -> str:
    """The protocols and their options, for --help; generated, so that it cannot drift."""
    lines = ["\b", "Protocols (--protocol NAME, options with -P NAME=VALUE):"]
    for protocol in PROTOCOLS.values():
        lines.append(f"  {protocol.name:<10} {protocol.summary.partition(':')[0].rstrip('.')}")
        names = ", ".join(
            f"{one.name}={'auto' if one.automatic else one.default}" for one in options_of(protocol.config).values()
        )
        lines.append(f"  {'':<10} {names}")
    return "\n".join(lines)


@click.command(epilog=_protocol_help())
@click.option(
    "--model", "models", multiple=True, required=True, metavar="NAME", help="Architecture; several with commas, or all."
)
@click.option(
    "--task", "tasks", multiple=True, required=True, metavar="NAME", help="Task; several with commas, or all."
)
@click.option(
    "-M", "model_options", multiple=True, metavar="NAME=VALUE", help="Architecture option: d=10, d=7,10,13 or H=1:31:5."
)
@click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option, in the same way.")
@click.option("-P", "protocol_options", multiple=True, metavar="NAME=VALUE", help="Protocol option, in the same way.")
@click.option(
    "--protocol", default="converged", show_default=True, metavar="NAME", help="How weights are found; see below."
)
@click.option(
    "--seeds", default="5", show_default=True, callback=parse_seeds, help="How many, or which (3,7 or 10:14)."
)
@click.option("--device", default="cpu", show_default=True, metavar="|".join(DEVICES), help="Where to compute.")
@click.option(
    "--kernel",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Fused training, for architectures that have it.",
)
@click.option(
    "--compile",
    "compiling",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="torch.compile, for training without a kernel; auto: when it takes minutes.",
)
@click.option("--floor", is_flag=True, help="Also find the floor of the divergence for the model's d; takes seconds.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; one for each core unless said.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Folder for the records."
)
@click.option("--overwrite", is_flag=True, help="Run again what is there already.")
@click.option("--dry-run", is_flag=True, help="Say what would run, and stop.")
@json_option
@plugin_options
def run(
    models: tuple[str, ...],
    tasks: tuple[str, ...],
    model_options: tuple[str, ...],
    task_options: tuple[str, ...],
    protocol_options: tuple[str, ...],
    protocol: str,
    seeds: tuple[int, ...],
    device: str,
    kernel: str,
    compiling: str,
    floor: bool,
    jobs: int | None,
    out: Path,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Measure how much architectures memorise of tasks.

    Every trial leaves one record; the same command again finds the records and trains only what is
    missing.

    \b
    membench run --model aot --task bigram
    membench run --model aot --task bigram -T N=20 -M H=1:16:3 --seeds 3
    membench run --model all --task all --protocol quick
    """
    if device.partition(":")[0] not in DEVICES:
        raise UsageError(f"device '{device}' is not one of {', '.join(DEVICES)}")
    registry = load_registry(files, block)
    trials = plan(registry, Request(models, tasks, model_options, task_options, protocol, protocol_options, seeds))
    if floor:
        _require_bottleneck(trials)
    store = Store(out)
    if not dry_run:
        store.check()
    pending = [trial for trial in trials if overwrite or not _is_done(store.find(trial), floor)]
    if dry_run:
        _announce(trials, pending, store, as_json)
        return
    with _watching(len(pending)) as watcher:
        execute(pending, store, registry.selection, Execution(device, kernel, compiling, floor, jobs), watcher)
    records = [_read(store, trial) for trial in trials]
    _show(records, store, len(pending), as_json)
    _fail_if_any(records)


def _require_bottleneck(trials: list[Trial]) -> None:
    for trial in trials:
        if trial.architecture.bottleneck is None:
            raise UsageError(f"--floor: {trial.architecture.name} declares no bottleneck, so that it has no floor")


def _is_done(record: Record | None, floor: bool) -> bool:
    return record is not None and (not floor or "excess_kl" in record.metrics)


def _read(store: Store, trial: Trial) -> Record:
    return Record.from_json(store.path(trial).read_text("utf-8"))


def _announce(trials: list[Trial], pending: list[Trial], store: Store, as_json: bool) -> None:
    paths = {store.path(trial) for trial in pending}
    rows = [
        {
            "path": str(store.path(trial)),
            "trial": trial.describe(),
            "seed": trial.seed,
            "runs": store.path(trial) in paths,
        }
        for trial in trials
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{'run ' if row['runs'] else 'done'}  {row['path']}")
    click.echo(f"{sum(bool(row['runs']) for row in rows)} of {len(rows)} trials would run")


@contextmanager
def _watching(pending: int) -> Iterator[Watcher]:
    """A progress bar on a terminal; elsewhere a line for each trial that fails and nothing more."""
    err = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0%}"), TimeElapsedColumn(),
        TextColumn("at most"), TimeRemainingColumn(), TextColumn("[dim]{task.fields[words]}"),
    )  # fmt: skip
    with Progress(*columns, console=err, disable=not (pending and err.is_terminal), transient=True) as bar:
        task = bar.add_task(f"0/{pending} trials", total=1.0, words="starting torch")
        yield Watcher(
            progress=lambda fraction, text: bar.update(task, completed=fraction, words=text),
            finished=_counter(lambda done: bar.update(task, description=f"{done}/{pending} trials"), err),
        )


def _counter(show: Callable[[int], Any], err: Console) -> Callable[[Trial, Record], None]:
    done = 0

    def finished(trial: Trial, record: Record) -> None:
        nonlocal done
        done += 1
        show(done)
        if not record.complete:
            err.print(f"failed: {trial.describe()}, seed {trial.seed}: {record.error}", markup=False, soft_wrap=True)

    return finished


def _show(records: list[Record], store: Store, ran: int, as_json: bool) -> None:
    from membench_leaderboard.frame import to_frame
    from membench_leaderboard.score import summarise
    from membench_leaderboard.table import boards, rows_as_json

    rows = summarise(to_frame(records))
    if as_json:
        print_json({"rows": rows_as_json(rows), "records": str(store.root), "ran": ran, "found": len(records) - ran})
        return
    out = console()
    for board in boards(rows, rank=False, width=out.width):
        out.print(board)
    folders = ", ".join(sorted({str(store.root / r.task["name"] / r.architecture["name"]) for r in records}))
    out.print(f"{ran} new, {len(records) - ran} found as records in {folders}", soft_wrap=True)
    out.print("Next: membench leaderboard" + ("" if store.root == Path("results") else f" {store.root}"), style="dim")


def _fail_if_any(records: list[Record]) -> None:
    failed = [record for record in records if not record.complete]
    if failed:
        sys.stdout.flush()
        raise PluginError(
            f"{len(failed)} of {len(records)} trials failed; their records say why, and the same command tries again"
        )
