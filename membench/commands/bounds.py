"""`membench bounds`: what theory says of an architecture on a task, without training anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from membench.analysis.bounds_table import Bounds, PointBounds, applies, says, short
from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, print_json
from membench.printing import console
from membench.verbs.arguments import load_registry
from membench.verbs.bounds import evaluate

if TYPE_CHECKING:
    from membench.interface.bound import Bound
    from membench.theory.evaluate import BoundValue

COLOURS = {"guarantee": "green", "limit": "red"}


@click.command()
@click.option("--model", required=True, metavar="NAME", help="Architecture, a single one.")
@click.option("--task", required=True, metavar="NAME", help="Task, a single one.")
@click.option(
    "-M",
    "model_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Architecture option: d=10; a grid such as H=1:31:5 makes columns.",
)
@click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option, same syntax as -M.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the facts.")
@click.option("--expensive", is_flag=True, help="Include bounds that take seconds: floors and optimised frames.")
@click.option("--markdown", is_flag=True, help="Print Markdown, with formulas.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot the bounds over a grid.")
@json_option
@plugin_options
def bounds(
    model: str,
    task: str,
    model_options: tuple[str, ...],
    task_options: tuple[str, ...],
    seed: int,
    expensive: bool,
    markdown: bool,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Show what is proven about an architecture on a task.

    Each bound on the architecture is shown with its value, or with the reason why it has none. A
    guarantee is reached by some weights; a limit is exceeded by none; an order is known only up to a
    constant, so nothing can pass or fail it; what is reported was measured by others, elsewhere.

    \b
    membench bounds --model aot --task bigram
    membench bounds --model aot --task bigram -M H=1:31:5 --plot bounds.png
    """
    registry = load_registry(files, block)
    evaluated = evaluate(registry, model, task, model_options, task_options, seed=seed, expensive=expensive)
    if plot:
        evaluated.write_plot(plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(evaluated.as_json())
    elif markdown:
        click.echo("\n\n".join(_markdown(point, evaluated) for point in evaluated.points))
    elif len(evaluated.points) == 1:
        for table in _one(evaluated.points[0], evaluated):
            console().print(table)
    else:
        console().print(_many(evaluated))


def _one(point: PointBounds, evaluated: Bounds) -> tuple[Table, Table]:
    """What the bounds say, and a table of those that say nothing here and why."""
    speaking = listing(escape(point.title), "bound", "says", "by")
    silent = listing("\nNot applicable here", "bound", "why")
    for value in point.values:
        bound = evaluated.known[value.name]
        if applies(value):
            style = COLOURS.get(bound.claim)
            speaking.add_row(value.name, _says(value, bound), escape(bound.formula), style=style)
        else:
            silent.add_row(value.name, escape(value.reason or ""), style="dim")
    return speaking, silent


def _says(value: BoundValue, bound: Bound) -> str:
    average = ", on average" if value.expected else ""
    only = f", for {escape(value.restricted_to)}" if value.restricted_to else ""
    return f"{says(value)}\n[dim]{bound.claim}{average}{only}[/dim]"


def _many(evaluated: Bounds) -> Table:
    headers, rows = evaluated.by_point()
    table = listing("Values by grid point", "bound", *headers)
    for name, values in rows.items():
        table.add_row(name, *map(short, values))
    return table


def _markdown(point: PointBounds, evaluated: Bounds) -> str:
    from tabulate import tabulate

    from membench.analysis.escape_markdown import escape

    rows = [
        {
            "bound": value.name,
            "of": value.quantity,
            "claim": evaluated.known[value.name].claim,
            "value": "-" if value.value is None else f"{value.value:.6g}",
            "formula": _formula(evaluated.known[value.name]),
            "note": value.reason or "",
            "reference": evaluated.known[value.name].reference,
        }
        for value in point.values
    ]
    escaped = [{key: cell if key == "formula" else escape(cell) for key, cell in row.items()} for row in rows]
    return f"### {point.title}\n\n{tabulate(escaped, headers='keys', tablefmt='github', disable_numparse=True)}"


def _formula(bound: Bound) -> str:
    from membench.analysis.escape_markdown import escape

    return f"${bound.latex}$".replace("|", "\\|") if bound.latex else escape(bound.formula)
