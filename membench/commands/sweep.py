"""`membench sweep`: a grid of trials in random order, with an estimate of the time it takes."""

from __future__ import annotations

import sys
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
from membench.commands._output import announce, announce_array, show_results
from membench.engine.execution import Execution
from membench.execute.run import fail_if_any
from membench.plan.request import Request
from membench.plan.shard import Shard
from membench.verbs.arguments import load_registry
from membench.verbs.run import carry_out
from membench.verbs.sweep import prepare


@click.command()
@request_options
@execution_options
@track_option
@shard_option
@out_option
@click.option("--dry-run", is_flag=True, help="Show how many trials would run and for how long, then exit.")
@json_option
@plugin_options
def sweep(
    request: Request,
    execution: Execution,
    shard: Shard | None,
    out: Path,
    dry_run: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Measure a grid of models and tasks, in random order.

    Like `membench run`, for long grids: at any time, what is done is a fair sample of the whole, so the
    time left is estimated well and an early plot shows the shape. A failed trial does not stop the sweep;
    after an interruption, rerun the command to continue.

    \b
    membench sweep --model aot --task bigram -T N=50 -M d=10 -M d_h=10 -M H=1:31:5 --seeds 5
    membench sweep --model aot --task bigram -M d=7,10,13 -M H=1:31:5 --dry-run
    membench sweep --model aot --task bigram -M d=7,10,13 -M H=1:31:5 --shard 3/100
    """
    planned = prepare(load_registry(files, block), request, execution, out, shard)
    if dry_run:
        announce(planned, as_json)
        announce_array(shard)
        return
    results = carry_out(planned)
    show_results(results, as_json)
    sys.stdout.flush()  # before the sentence on what failed
    fail_if_any(results.records)
