"""`membench tune`: the shape of an architecture that holds most within a budget."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.markup import escape

from membench.commands._options import execution_options, json_option, out_option, plugin_options, request_options
from membench.commands._output import listing, show_results
from membench.engine.execution import Execution
from membench.execute.run import fail_if_any
from membench.measure.size import ALL, COUNTS
from membench.plan.request import Request
from membench.printing import console
from membench.shape_search.search import SHAPES
from membench.verbs.arguments import EACH, budgets_of, load_registry
from membench.verbs.tune import search_and_measure


@click.command()
@request_options
@click.option("--budget", metavar="3k,10k", required=True, help="Largest number of parameters.")
@click.option("--count", type=click.Choice([*COUNTS, EACH]), default=ALL.word, show_default=True,
              help="Which parameters a budget counts.")  # fmt: skip
@click.option("--shapes", type=click.IntRange(min=1), default=SHAPES, show_default=True,
              help="Shapes that a search starts with; others near the best join.")  # fmt: skip
@execution_options
@click.option("--floor", is_flag=True, help="Also find the divergence floor for the best shape's d.")
@click.option("--keep-weights", is_flag=True, help="Save the weights of the best shape, for membench submit.")
@out_option
@click.option("--search-out", type=click.Path(path_type=Path), default=Path("tuning"), show_default=True,
              help="Folder for the records of the search.")  # fmt: skip
@json_option
@plugin_options
def tune(
    request: Request,
    budget: str,
    count: str,
    shapes: int,
    execution: Execution,
    floor: bool,
    keep_weights: bool,
    out: Path,
    search_out: Path,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Find the shape that holds most within a budget, and measure it.

    Searches all options of an architecture that change its size, in short trainings by `converged` on seeds that are
    used for nothing else, and measures the best shape as `membench run` does. An option that is given with -M, as a
    single value, stays as it is. After an interruption, rerun the command to continue.

    \b
    membench tune --model aot --task bigram --budget 3k
    membench tune --model all --task bigram --budget 3k,10k -M aot.layers=1
    """
    request = replace(request, budgets=budgets_of(budget, count))
    execution = replace(execution, floor=floor, keep_weights=keep_weights)
    tuned = search_and_measure(
        load_registry(files, block), request, execution, out, search_out, shapes=shapes, show=True
    )  # fmt: skip
    for search in () if as_json else tuned.searches:
        headers, rows = search.table()
        table = listing(escape(search.subject.title), *headers)
        for row in rows:
            table.add_row(*row)
        console().print(table)
        console().print(escape(search.sentence()), soft_wrap=True)
    show_results(tuned.results, as_json, {"searches": [one.as_json() for one in tuned.searches]})
    sys.stdout.flush()  # before the sentence on what failed
    fail_if_any(tuned.results.records)
