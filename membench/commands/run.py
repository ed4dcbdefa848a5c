"""`membench run`: trials in, records out, and a table of what they say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from membench.commands.common import console, json_option, load_registry, parse_seeds, plugin_options, print_json
from membench.commands.execution import carry_out, execution_options, out_option, request_options
from membench.engine.protocols import PROTOCOLS
from membench.errors import PluginError, UsageError
from membench.execute import Execution
from membench.options import options_of
from membench.plan import Request, plan
from membench.records import Record, Store
from membench.trial import Trial


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
@request_options
@click.option(
    "--seeds", default="5", show_default=True, callback=parse_seeds, help="How many, or which (3,7 or 10:14)."
)
@execution_options
@click.option("--floor", is_flag=True, help="Also find the floor of the divergence for the model's d; takes seconds.")
@out_option
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
    execution: Execution,
    floor: bool,
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
    records = carry_out(trials, store, registry.selection, replace(execution, floor=floor), pending)
    show(records, store, len(pending), as_json)
    fail_if_any(records)


def _require_bottleneck(trials: list[Trial]) -> None:
    for trial in trials:
        if trial.architecture.bottleneck is None:
            raise UsageError(f"--floor: {trial.architecture.name} declares no bottleneck, so that it has no floor")


def _is_done(record: Record | None, floor: bool) -> bool:
    return record is not None and (not floor or "excess_kl" in record.metrics)


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


def show(records: list[Record], store: Store, ran: int, as_json: bool) -> None:
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


def fail_if_any(records: list[Record]) -> None:
    failed = [record for record in records if not record.complete]
    if failed:
        sys.stdout.flush()
        raise PluginError(
            f"{len(failed)} of {len(records)} trials failed; their records say why, and the same command tries again"
        )
