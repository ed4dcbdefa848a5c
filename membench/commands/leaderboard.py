"""`membench leaderboard`: compare what was measured."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands.common import console, json_option, print_json
from membench.errors import UsageError
from membench.records import read_records


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--task", "task", metavar="NAME", help="Only this task.")
@click.option("--protocol", metavar="NAME", help="Only this protocol.")
@click.option(
    "--format", "form", type=click.Choice(["table", "markdown", "csv", "json"]), default="table", show_default=True
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw accuracy against parameters (.png, .svg, .pdf).",
)
@json_option
def leaderboard(
    folders: tuple[Path, ...], task: str | None, protocol: str | None, form: str, plot: Path | None, as_json: bool
) -> None:
    """Rank the records below FOLDERS (./results unless said).

    There is one table for each task config and protocol, since only like can be compared with like.
    Rows whose intervals overlap share a rank. Runs with the protocol quick are shown, not ranked.

    \b
    membench leaderboard
    membench leaderboard results/ --task bigram --format markdown
    membench leaderboard --task bigram --plot board.png
    """
    from membench_leaderboard.frame import to_frame
    from membench_leaderboard.score import select, summarise
    from membench_leaderboard.table import as_text, boards, rows_as_json

    records, problems = read_records(list(folders) or [Path("results")])
    for problem in problems:
        click.echo(f"membench: {problem}", err=True)
    rows = select(summarise(to_frame(records)), task=task, protocol=protocol)
    if rows.empty:
        raise UsageError("there are no finished trials to show; make some with: membench run --model aot --task bigram")
    if plot:
        from membench_leaderboard.plot import draw

        click.echo(f"wrote {draw(rows, plot)}", err=True)
    if as_json or form == "json":
        print_json(rows_as_json(rows))
    elif form == "table":
        out = console()
        for board in boards(rows, width=out.width):
            out.print(board)
    else:
        click.echo(as_text(rows, form))
