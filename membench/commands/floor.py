"""`membench floor`: the best divergence that logits of rank d can reach on a task, as an interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from membench.commands.common import console, json_option, listing, load_registry, plugin_options, print_json
from membench.errors import UsageError
from membench.interface.facts import draw_facts
from membench.interface.options import assignments, expand, label, option

if TYPE_CHECKING:
    from membench.theory.floor import FloorInterval


@dataclass(frozen=True, kw_only=True)
class Rank:
    d: int = option(2, help="dimension of the bottleneck", minimum=1)


@click.command()
@click.option("--task", required=True, metavar="NAME", help="Task.")
@click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option.")
@click.option("-M", "rank_options", multiple=True, metavar="d=VALUES", help="Dimensions: d=2, d=2,5,10 or d=2:48.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the facts.")
@click.option("--starts", default=8, show_default=True, type=click.IntRange(min=1), help="Descents for each d.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the interval over d.")
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
    """Bracket the best divergence of logits of rank d.

    No model with a linear unembedding from d dimensions undercuts it. The lower end is
    proven. The upper end is the best of several descents: it may be improved, and a trained model that
    beats it improves it.

    \b
    membench floor --task low-entropy -T N=10 -M d=1:9
    """
    from membench.theory.floor import floors

    registry = load_registry(files, block)
    chosen = registry.task(task)
    configs = expand(chosen.config, assignments(task_options), task, f"see its options with: membench tasks {task}")
    if len(configs) > 1:
        raise UsageError(f"{task}: a floor is of one task config, not of {len(configs)}; give single values with -T")
    ranks = expand(Rank, assignments(rank_options), "floor", "the only option is d")
    dimensions = sorted({rank.d for rank in ranks})
    facts = draw_facts(chosen, configs[0], seed)
    found: list[FloorInterval] = []
    try:
        for interval in _watched(floors(facts, dimensions, starts), len(dimensions)):
            found.append(interval)
    finally:  # Ctrl-C shows what was found so far
        _show(found, f"{task} ({label(configs[0])}), seed {seed}: KL in nats", as_json)
    if plot:
        from membench.analysis.bounds_plot import draw_floor

        click.echo(f"wrote {draw_floor(found, f'{task} ({label(configs[0])})', plot)}", err=True)


def _watched(intervals: Iterator[FloorInterval], total: int) -> Iterable[FloorInterval]:
    err = Console(stderr=True)
    return track(intervals, "descending", total=total, console=err, disable=not err.is_terminal, transient=True)


def _show(found: list[FloorInterval], title: str, as_json: bool) -> None:
    if as_json:
        print_json([asdict(interval) for interval in found])
        return
    table = listing(title, "d", "proven lower", "best found", "worst end", "descents", "max |gradient|")
    for one in found:
        numbers = (
            f"{one.lower:.3g}",
            f"{one.upper:.6f}",
            f"{one.worst:.6f}",
            str(one.starts),
            f"{one.gradient_norm:.1e}",
        )
        table.add_row(str(one.d), *numbers)
    console().print(table)
