"""`membench floor`: the best divergence that logits of rank d can reach on a task, as an interval."""

from __future__ import annotations

from pathlib import Path

import click

from membench.analysis.floor_table import Floor
from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, print_json
from membench.printing import console
from membench.verbs.arguments import load_registry
from membench.verbs.floor import descend


@click.command()
@click.option("--task", required=True, metavar="NAME", help="Task.")
@click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option.")
@click.option("-M", "rank_options", multiple=True, metavar="d=VALUES", help="Dimensions: d=2, d=2,5,10 or d=2:48.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the facts.")
@click.option("--starts", default=8, show_default=True, type=click.IntRange(min=1), help="Descents per d.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot the interval against d.")
@json_option
@plugin_options
def floor(
    task: str,
    task_options: tuple[str, ...],
    rank_options: tuple[str, ...],
    seed: int,
    starts: int,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Bound the best divergence that rank-d logits can reach.

    No model with a linear unembedding from d dimensions can do better. The lower end is proven. The upper
    end is the best of several descents, and a trained model that beats it lowers it.

    \b
    membench floor --task low-entropy -T N=10 -M d=1:9
    """
    result = Floor.of(load_registry(files, block), task, task_options, rank_options, seed=seed, starts=starts)
    try:
        descend(result)
    finally:  # Ctrl-C shows what was found so far
        _show(result, as_json)
    if plot:
        result.write_plot(plot)
        click.echo(f"wrote {plot}", err=True)


def _show(result: Floor, as_json: bool) -> None:
    if as_json:
        print_json(result.as_json())
        return
    title = f"{result.title}, seed {result.seed}: KL in nats"
    table = listing(title, "d", "proven lower", "best found", "worst end", "descents", "max |gradient|")
    for one in result.intervals:
        ends = (f"{one.lower:.3g}", f"{one.upper:.6f}", f"{one.worst:.6f}")
        table.add_row(str(one.d), *ends, str(one.starts), f"{one.gradient_norm:.1e}")
    console().print(table)
