"""`membench capacity`: the number of facts that a model memorises, with an interval."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from membench.analysis.figure_style import check_figure_path
from membench.capacity_search.search import Levels
from membench.capacity_search.subject import VARIED
from membench.commands._options import execution_options, json_option, out_option, plugin_options, point_options
from membench.commands._output import listing, print_json
from membench.engine.execution import Execution
from membench.plan.request import Request
from membench.printing import console
from membench.verbs.arguments import load_registry
from membench.verbs.capacity import find


def parse_levels(context: click.Context, parameter: click.Parameter, text: str) -> Levels:
    """`1,0.99` as accuracies, or `recall@5=0.99`."""
    return Levels.parse(text)


@click.command()
@point_options
@click.option("--vary", type=click.Choice(VARIED), default="T0", show_default=True,
              help="T0: more facts of the same task; N: larger vocabularies, with all their contexts.")  # fmt: skip
@click.option("--at", "levels", default="1,0.99", show_default=True, callback=parse_levels,
              help="Accuracies that count as memorised, or recall@5=0.99.")  # fmt: skip
@click.option("--resolution", default=0.1, show_default=True, type=click.FloatRange(0.001, 1),
              help="Relative width of the bracket around a threshold.")  # fmt: skip
@click.option("--largest", type=click.IntRange(min=2), help="Upper limit for the varied option.")
@execution_options
@out_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot accuracy and bits against load.")
@json_option
@plugin_options
def capacity(
    request: Request,
    vary: str,
    levels: Levels,
    resolution: float,
    largest: int | None,
    execution: Execution,
    out: Path,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Find how many facts one model memorises.

    Trains several seeds on more and more facts, brackets the number at which they stop memorising all
    (or 99 %) of them, refines the bracket, and fits the threshold to all trials. Each trial writes one
    record; after an interruption, rerun the command to continue.

    \b
    membench capacity --model aot --task bigram -T N=50 -M d=10 -M H=4
    membench capacity --model linear-memory --task recall --at recall@5=0.99
    membench capacity --model linear-memory --task ngram -T S=1 --vary N -M d=16
    """
    check_figure_path(plot)
    registry = load_registry(files, block)
    result = find(registry, request, execution, out, vary=vary, levels=levels, resolution=resolution, largest=largest)
    if plot:
        result.write_plot(plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(result.as_json())
        return
    headers, rows = result.table()
    table = listing(escape(result.subject.title), *headers)
    for row in rows:
        table.add_row(*row)
    console().print(table)
    new, old = result.ran, len(result.measurements) - result.ran
    for sentence in (*result.sentences(), f"{new} trials run, {old} reused from {result.store.root}"):
        console().print(escape(sentence), soft_wrap=True)
