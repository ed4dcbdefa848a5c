"""`membench board`: what is missing on the board, and filling it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape

from membench.commands._options import execution_options, json_option, names, plugin_options
from membench.commands._output import listing, print_json
from membench.engine.execution import Execution
from membench.errors import PluginError
from membench.execute.estimate import duration
from membench.printing import console
from membench.verbs.arguments import load_registry
from membench.verbs.board import Filling
from membench.verbs.board import fill as fill_board
from membench_leaderboard.tracks import TRACKS


@click.group()
def board() -> None:
    """Run what is missing from the board."""


@board.command()
@click.option(
    "--track",
    "tracks",
    multiple=True,
    callback=names,
    metavar="NAME",
    help=f"Only these tracks (comma-separated): {', '.join(TRACKS)}.",
)
@click.option("--models", "--model", "models", multiple=True, callback=names, metavar="NAME",
              help="Only these architectures (comma-separated); by default all.")  # fmt: skip
@click.option("--hours", type=float, default=2.0, show_default=True,
              help="Time to spend; 0 only says what is missing.")  # fmt: skip
@click.option("--no-published", is_flag=True, help="Also run what the published records have.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("board"), show_default=True,
              help="Folder for the records and their weights.")  # fmt: skip
@execution_options
@json_option
@plugin_options
def fill(
    tracks: tuple[str, ...],
    models: tuple[str, ...],
    hours: float,
    no_published: bool,
    out: Path,
    execution: Execution,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Run what is missing on the tracks of the board, the cheapest first, within a time.

    Says beforehand what it will take, and afterwards what is still missing. Rerun it to go on. The records
    and weights it writes are what `membench submit` takes.

    \b
    membench board fill --models mine --plugin mine.py --hours 1
    membench board fill --track efficiency --hours 0
    """
    filling = fill_board(
        load_registry(files, block), models, tracks, execution, out, hours=hours, published=not no_published
    )  # fmt: skip
    if as_json:
        print_json({**asdict(filling), "seconds": filling.seconds})
    else:
        _show(filling, out)
    if filling.failed:
        raise PluginError(f"{filling.failed} of {filling.ran} trials failed; their records say why")


def _show(filling: Filling, out: Path) -> None:
    table = listing("still missing", "track", "architecture", "places", "on one core")
    for one in filling.left:
        table.add_row(one.track, escape(one.architecture), str(one.places), duration(one.seconds))
    if filling.left:
        console().print(table)
    for reason in filling.unreachable:
        console().print(f"cannot be filled: {escape(reason)}", soft_wrap=True)
    done = "nothing is missing" if not filling.left else f"still missing: about {duration(filling.seconds)} on one core"
    console().print(f"{filling.ran} trials were run; {done}")
    if filling.ran:
        console().print(escape(f"Next: membench leaderboard {out}, and: membench submit {out}"), soft_wrap=True)
