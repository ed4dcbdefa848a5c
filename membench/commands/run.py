"""`membench run`: trials in, records out, and a table of what they say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from membench.commands.common import console, json_option, load_registry, plugin_options, print_json
from membench.commands.execution import carry_out, execution_options, out_option, request_options
from membench.engine.execution import Execution
from membench.engine.protocols.protocol import PROTOCOLS
from membench.errors import PluginError, UsageError
from membench.interface.options import options_of
from membench.measure.size import COUNTS
from membench.plan.budget import Budget, parse_budget
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records import weights
from membench.records.record import Record
from membench.records.store import Store

BOTH = "both"


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
    "--budget",
    metavar="3k,10k",
    help="Instead of -M: each architecture's best config for so many parameters.",
)
@click.option(
    "--count",
    type=click.Choice([*COUNTS, BOTH]),
    default="all",
    show_default=True,
    help="Which parameters a budget counts.",
)
@execution_options
@click.option("--floor", is_flag=True, help="Also find the floor of the divergence for the model's d; takes seconds.")
@click.option("--keep-weights", is_flag=True, help="Keep the weights beside each record, for membench submit.")
@out_option
@click.option("--overwrite", is_flag=True, help="Run again what is there already.")
@click.option("--dry-run", is_flag=True, help="Say what would run, and stop.")
@json_option
@plugin_options
def run(
    request: Request,
    budget: str | None,
    count: str,
    execution: Execution,
    floor: bool,
    keep_weights: bool,
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
    membench run --model all --task bigram --budget 3k,10k,30k
    """
    registry = load_registry(files, block)
    request = replace(request, budgets=_budgets(budget, count))
    trials = plan(registry, request, lambda reason: click.echo(f"left out: {reason}", err=True))
    if floor:
        _require_bottleneck(trials)
    store = Store(out)
    if not dry_run:
        store.check()
    pending = [trial for trial in trials if overwrite or not _is_done(store, trial, floor, keep_weights)]
    if dry_run:
        _announce(trials, pending, store, as_json)
        return
    execution = _no_less_than_before(replace(execution, floor=floor, keep_weights=keep_weights), pending, store)
    records = carry_out(trials, store, registry, execution, pending)
    show(records, store, len(pending), as_json)
    fail_if_any(records)


def _budgets(text: str | None, count: str) -> list[Budget]:
    sizes = [parse_budget(part) for part in text.split(",")] if text else []
    return [Budget(size, one) for one in (COUNTS if count == BOTH else (count,)) for size in sizes]


def _require_bottleneck(trials: list[Trial]) -> None:
    for trial in trials:
        if trial.architecture.bottleneck is None:
            raise UsageError(f"--floor: {trial.architecture.name} declares no bottleneck, so that it has no floor")


def _is_done(store: Store, trial: Trial, floor: bool, keep_weights: bool) -> bool:
    """Whether there is a record that has all that is asked for."""
    record = store.find(trial)
    if record is None or (floor and "excess_kl" not in record.metrics):
        return False
    return not keep_weights or weights.are_there(record.weights, store.path(trial))


def _no_less_than_before(execution: Execution, pending: list[Trial], store: Store) -> Execution:
    """What the records have that are about to be replaced, the new ones get too."""
    found = [record for record in map(store.find, pending) if record]
    had_floor = any("excess_kl" in record.metrics for record in found)
    return replace(
        execution,
        keep_weights=execution.keep_weights or any(record.weights for record in found),
        floor=execution.floor or (had_floor and all(trial.architecture.bottleneck for trial in pending)),
    )


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
    from membench_leaderboard.data import rows_as_json
    from membench_leaderboard.frame import to_frame
    from membench_leaderboard.rows import summarise
    from membench_leaderboard.table import boards

    rows = summarise(to_frame(records))
    if as_json:
        print_json({"rows": rows_as_json(rows), "records": str(store.root), "ran": ran, "found": len(records) - ran})
        return
    out = console()
    for board in boards(rows, rank=False, width=out.width):
        out.print(board)
    folders = ", ".join(sorted({str(store.root / r.task["name"] / r.architecture["name"]) for r in records}))
    out.print(f"{ran} new, {len(records) - ran} found as records in {folders}", soft_wrap=True)
    out.print(f"Next: membench leaderboard {store.root}", style="dim", soft_wrap=True, markup=False)


def fail_if_any(records: list[Record]) -> None:
    failed = [record for record in records if not record.complete]
    if failed:
        sys.stdout.flush()
        raise PluginError(
            f"{len(failed)} of {len(records)} trials failed; their records say why, and the same command tries again"
        )
