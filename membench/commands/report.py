"""`membench report`: the board as one HTML file, for people who have no membench."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from membench.commands._options import plugin_options
from membench.verbs.arguments import load_registry
from membench.verbs.report import report as write_report


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(readable=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("membench-report.html"),
    show_default=True,
    metavar="FILE",
    help="File to write.",
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@click.option("--no-published", is_flag=True, help="Leave out the published records.")
@plugin_options
def report(
    folders: tuple[Path, ...],
    out: Path,
    show: bool,
    no_published: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Write the board as one HTML file.

    It holds tables, plots, citations, and the command that reruns each best row. The rows are those of
    `membench leaderboard` with the same FOLDERS. The file needs no network and no server, so it can be
    sent to anyone.

    \b
    membench report --open
    membench report results --out board.html
    """
    from membench_leaderboard.words import counted

    made = write_report(folders, out, load_registry(files, block), published=not no_published)
    click.echo(f"wrote {out}: {counted(made.rows, 'row')} in {counted(made.tables, 'table')}")
    if show and not webbrowser.open(out.resolve().as_uri()):
        click.echo(f"membench: no browser found; open '{out}' yourself", err=True)
