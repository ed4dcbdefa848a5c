"""`membench leaderboard`: the published board, and what was measured among it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing
from membench.errors import UsageError
from membench.measure.size import ALL, COUNTS
from membench.plan.budget import parse_budget
from membench.printing import console
from membench.verbs.arguments import load_registry
from membench.verbs.leaderboard import leaderboard as choose
from membench_leaderboard.formats import EXPLANATIONS, FORMATS, Board


def _parse_budget(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_budget(text)


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(readable=False, path_type=Path))
@click.option("--task", "task", metavar="NAME", help="Only this task.")
@click.option(
    "-T", "options", multiple=True, metavar="NAME=VALUE", help="Only tasks with this option value, such as N=50."
)
@click.option("--protocol", metavar="NAME", help="Only this protocol.")
@click.option("--rows", "models", is_flag=True, help="Show every model, not one score per architecture.")
@click.option(
    "--budget", callback=_parse_budget, metavar="10k", help="Show every model with at most this many parameters."
)
@click.option(
    "--count",
    type=click.Choice(list(COUNTS)),
    default=ALL.word,
    show_default=True,
    help="Which parameters count against a budget.",
)
@click.option("--no-published", is_flag=True, help="Leave out the published records.")
@click.option(
    "--explain", metavar="ROW", help="Show where a row comes from: a rank, an architecture, or the start of an id."
)
@click.option("--history", is_flag=True, help="Who held each first place, since when, and by how much.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Plot accuracy against parameters (.png, .svg, .pdf).",
)
@json_option
@plugin_options
def leaderboard(
    folders: tuple[Path, ...],
    task: str | None,
    options: tuple[str, ...],
    protocol: str | None,
    models: bool,
    budget: int | None,
    count: str,
    no_published: bool,
    explain: str | None,
    history: bool,
    form: str,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Show the published board, with your records alongside.

    Records in FOLDERS join the published ones in the same tables. There is one table per task config
    and protocol, since only like can be compared with like. Rows whose intervals overlap share a rank.
    Runs with the quick protocol are shown but not ranked.

    \b
    membench leaderboard
    membench leaderboard results --task bigram --budget 10k
    membench leaderboard results --no-published --plot board.png
    membench leaderboard --task bigram --explain aot
    """
    from membench_leaderboard.gather import no_collection

    form = "json" if as_json else form
    if history:
        _show_history(form)
        return
    if explain is not None and form not in EXPLANATIONS:
        raise UsageError(f"--explain --format {form}: an explanation is printed as {' or '.join(EXPLANATIONS)}")
    with no_collection():
        entries, rows = choose(
            folders, published=not no_published, task=task, protocol=protocol, options=options, budget=budget,
            count=count,
        )  # fmt: skip
        every = models or budget is not None
        board = Board(entries, rows, every, count, lambda: load_registry(files, block), console())
        if plot:
            from membench_leaderboard.plot import draw

            click.echo(f"wrote {draw(rows, plot)}", err=True)
        click.echo(FORMATS[form](board) if explain is None else EXPLANATIONS[form](board, explain))


def _show_history(form: str) -> None:
    from dataclasses import asdict

    from membench.printing import as_json
    from membench_leaderboard.first_places import history_table, read_history

    history = read_history()
    if form not in ("table", "json"):
        raise UsageError(f"--history --format {form}: the history is printed as table or json")
    if form == "json":
        click.echo(as_json([asdict(one) for one in history]))
    elif not history:
        click.echo("Nobody has taken a first place of a track yet.")
    else:
        headers, rows = history_table(history)
        table = listing("First places, the newest holder of each first", *headers)
        for row in rows:
            table.add_row(*map(escape, row))
        console().print(table)
