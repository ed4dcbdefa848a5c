"""`membench leaderboard`: the published board, and what was measured among it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from membench.commands._options import json_option, plugin_options
from membench.commands._output import console, print_json
from membench.errors import UsageError, unknown
from membench.plan.budget import parse_budget
from membench.verbs.arguments import load_registry

if TYPE_CHECKING:
    import pandas as pd

    from membench.interface.registry import Registry
    from membench_leaderboard.frame import Entry

FIRST = "make some with: membench run --model aot --task bigram, and show them with: membench leaderboard results"
COUNTS = {"all": "all", "without-embeddings": "without_embeddings"}


def _parse_budget(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_budget(text)


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--task", "task", metavar="NAME", help="Only this task.")
@click.option("-T", "options", multiple=True, metavar="NAME=VALUE", help="Only tasks with this option, such as N=50.")
@click.option("--protocol", metavar="NAME", help="Only this protocol.")
@click.option("--rows", "models", is_flag=True, help="Every model instead of one score for each architecture.")
@click.option("--budget", callback=_parse_budget, metavar="10k", help="Every model with at most so many parameters.")
@click.option(
    "--count",
    type=click.Choice(list(COUNTS)),
    default="all",
    show_default=True,
    help="Which parameters count for budgets.",
)
@click.option("--no-published", is_flag=True, help="Only what is below FOLDERS.")
@click.option("--explain", metavar="ROW", help="How a row came about: its rank, architecture, or the start of its id.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "csv", "json", "html"]),
    default="table",
    show_default=True,
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw accuracy against parameters (.png, .svg, .pdf).",
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
    form: str,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Show the published board, and your records among it.

    With FOLDERS, the records below them are shown among the published ones of the same tables.
    There is one table for each task config and protocol, since only like can be compared with like.
    Rows whose intervals overlap share a rank. Runs with the protocol quick are shown, not ranked.

    \b
    membench leaderboard
    membench leaderboard results --task bigram --budget 10k
    membench leaderboard results --no-published --plot board.png
    membench leaderboard --task bigram --explain aot
    """
    from membench_leaderboard.board import board_data
    from membench_leaderboard.sources import no_collection

    with no_collection():
        found, rows = read_board(folders, no_published)
        chosen = _select(rows, task, protocol, options, budget, COUNTS[count])
        if plot:
            from membench_leaderboard.plot import draw

            click.echo(f"wrote {draw(chosen, plot)}", err=True)
        every_model = models or budget is not None
        if explain is not None:
            _explain(found, chosen, explain, every_model, as_json or form == "json", load_registry(files, block))
        elif as_json or form in ("json", "html"):
            _hand_over(board_data(found, chosen, load_registry(files, block)), as_json or form == "json")
        else:
            _show(chosen, form, every_model, COUNTS[count])


def read_board(folders: tuple[Path, ...], no_published: bool) -> tuple[list[Entry], pd.DataFrame]:
    """The records of a board, and the rows that it shows; UsageError, with what to do first, when there are none."""
    from membench_leaderboard.frame import to_frame
    from membench_leaderboard.rows import summarise
    from membench_leaderboard.sources import gather

    found, problems = gather(folders, published=not no_published)
    for problem in problems:
        click.echo(f"membench: {problem}", err=True)
    rows = _among_yours(summarise(to_frame(found)), bool(folders))
    if rows.empty:
        raise UsageError(_nothing(folders, no_published))
    return found, rows


def _select(
    rows: pd.DataFrame,
    task: str | None,
    protocol: str | None,
    options: tuple[str, ...],
    budget: int | None,
    count: str,
) -> pd.DataFrame:
    """The rows that were asked for; UsageError, with what there is, when there are none."""
    from membench_leaderboard.rows import select

    chosen = select(rows, task=task, protocol=protocol, options=options)
    if chosen.empty:
        raise _no_such_table(rows, task, protocol, options)
    return _within(chosen, budget, count)


def _among_yours(rows: pd.DataFrame, yours: bool) -> pd.DataFrame:
    """What was published is shown where there is something of yours to compare it with, or where nothing is yours."""
    from membench_leaderboard.rows import TABLE

    if not yours:
        return rows
    tables = {tuple(key) for key in rows.loc[~rows["published"].astype(bool), TABLE].itertuples(index=False)}
    return rows[[tuple(key) in tables for key in rows[TABLE].itertuples(index=False)]]


def _nothing(folders: tuple[Path, ...], no_published: bool) -> str:
    if folders:
        where = " and ".join(f"'{folder}'" for folder in folders)
        return f"there are no finished trials below {where}; {FIRST}"
    if no_published:
        return f"--no-published leaves nothing to show; name a folder of records, or {FIRST}"
    return f"no records came with this membench; {FIRST}"


def _no_such_table(rows: pd.DataFrame, task: str | None, protocol: str | None, options: tuple[str, ...]) -> UsageError:
    """The name that nothing has, or the choice that is empty together."""
    for kind, name in (("task", task), ("protocol", protocol)):
        there = sorted(set(rows[kind]))
        if name is not None and name not in there:
            return unknown(f"{kind} of this board", name, there, f"there are: {', '.join(there)}")
    there = sorted({f"{row.task} ({row.task_config}), {row.protocol}" for row in rows.itertuples()})
    wanted = ", ".join([*filter(None, (task, protocol)), *options])
    return UsageError(f"no table is about {wanted}; there are: {'; '.join(there)}")


def _within(rows: pd.DataFrame, budget: int | None, count: str) -> pd.DataFrame:
    from membench_leaderboard.rows import select
    from membench_leaderboard.scores import COUNTS as COLUMNS

    fitting = select(rows, budget=budget, count=COLUMNS[count])
    if fitting.empty and budget is not None:
        smallest = rows.sort_values(COLUMNS[count]).iloc[0]
        raise UsageError(
            f"--budget {budget:,}: no model is that small; the smallest is {smallest['architecture']} "
            f"({smallest['config']}) with {smallest[COLUMNS[count]]:,.0f} parameters"
        )
    return fitting


def _explain(
    found: list[Entry], rows: pd.DataFrame, text: str, models: bool, as_json: bool, registry: Registry
) -> None:
    from membench_leaderboard.explain import explain
    from membench_leaderboard.explain_text import print_explanation

    story = explain(found, rows, text, registry, models=models)
    if as_json:
        print_json(story)
    else:
        print_explanation(story, console())


def _show(rows: pd.DataFrame, form: str, models: bool, count: str) -> None:
    from membench_leaderboard.markdown import as_csv, rows_as_markdown, scores_as_markdown
    from membench_leaderboard.table import boards, score_boards

    if form == "table":
        out = console()
        bars = out.is_terminal and out.encoding.startswith("utf")
        tables = (
            boards(rows, width=out.width) if models else score_boards(rows, count=count, width=out.width, bars=bars)
        )
        for table in tables:
            out.print(table)
    elif form == "markdown":
        click.echo(rows_as_markdown(rows) if models else scores_as_markdown(rows, count))
    else:
        click.echo(as_csv(rows))


def _hand_over(data: dict[str, Any], as_json: bool) -> None:
    """The whole board at once: for machines, or as a page."""
    if as_json:
        print_json(data)
    else:
        from membench_leaderboard.page import page

        click.echo(page(data))
