"""`membench run`: trials in, records out, and a table of what they say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from membench.commands._options import (
    execution_options,
    json_option,
    out_option,
    plugin_options,
    request_options,
    shard_option,
    track_option,
)
from membench.commands._output import announce_array, print_json, show_results
from membench.engine.execution import Execution
from membench.engine.protocols.protocol import PROTOCOLS
from membench.execute.run import Run, fail_if_any
from membench.interface.options import options_of
from membench.measure.size import ALL, COUNTS
from membench.plan.request import Request
from membench.plan.shard import Shard
from membench.verbs.arguments import EACH, budgets_of, load_registry, quantizations
from membench.verbs.run import carry_out, prepare


def _protocol_help() -> str:
    """The protocols and their options, for --help; generated, so that it cannot drift."""
    lines = ["\b", "Protocols (--protocol NAME, options with -P NAME=VALUE):"]
    for protocol in PROTOCOLS.values():
        lines.append(f"  {protocol.key:<12} {protocol.summary.partition(':')[0].rstrip('.')}")
        names = " ".join(
            f"{one.name}={'auto' if one.automatic else one.default}" for one in options_of(protocol.config).values()
        )
        lines.append(f"  {'':<12} {names}")
    return "\n".join(lines)


@click.command(epilog=_protocol_help())
@request_options
@click.option(
    "--budget",
    metavar="3k,10k",
    help="Instead of -M: each architecture's best config within that many parameters.",
)
@click.option(
    "--count",
    type=click.Choice([*COUNTS, EACH]),
    default=ALL.word,
    show_default=True,
    help="Which parameters a budget counts.",
)
@execution_options
@track_option
@click.option(
    "--floor", is_flag=True, help="Also find the divergence floor for the model's d; takes seconds per trial."
)
@click.option(
    "--quantize",
    metavar="NAMES",
    default="",
    help="Also round the weights after training and ask again: int8, int4, bfloat16 (comma-separated).",
)
@click.option("--keep-weights", is_flag=True, help="Save the weights beside each record, for membench submit.")
@shard_option
@out_option
@click.option("--overwrite", is_flag=True, help="Rerun trials that already have records.")
@click.option("--dry-run", is_flag=True, help="Show what would run, then exit.")
@json_option
@plugin_options
def run(
    request: Request,
    budget: str | None,
    count: str,
    execution: Execution,
    floor: bool,
    quantize: str,
    keep_weights: bool,
    shard: Shard | None,
    out: Path,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Measure how much of each task an architecture memorises.

    Each trial writes one record; rerunning the command trains only what is missing.

    \b
    membench run --model aot --task bigram
    membench run --model aot --task bigram -T N=20 -M H=1:16:3 --seeds 3
    membench run --model all --task all --protocol quick
    membench run --model all --task bigram --budget 3k,10k,30k
    """
    request = replace(request, budgets=budgets_of(budget, count))
    execution = replace(execution, floor=floor, keep_weights=keep_weights, quantize=quantizations(quantize))
    planned = prepare(load_registry(files, block), request, execution, out, overwrite=overwrite, shard=shard)
    if dry_run:
        _announce(planned, as_json)
        announce_array(shard)
        return
    results = carry_out(planned)
    show_results(results, as_json)
    sys.stdout.flush()  # before the sentence on what failed
    fail_if_any(results.records)


def _announce(planned: Run, as_json: bool) -> None:
    rows = [
        {
            "path": str(planned.store.path(trial)),
            "trial": trial.describe(),
            "seed": trial.seed,
            "runs": (trial.id, trial.seed) not in planned.found,
        }
        for trial in planned.trials
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{'run ' if row['runs'] else 'done'}  {row['path']}")
    click.echo(f"{len(planned.pending)} of {len(rows)} trials would run")
