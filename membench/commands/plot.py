"""`membench plot`: any column of the records against any other, with fitted laws and anybody's points on top."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands.common import json_option, print_json
from membench.commands.figures import write_figure
from membench.errors import UsageError
from membench.interface.options import assignments

SUFFIXES = (".png", ".svg", ".pdf")


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--x", required=True, metavar="NAME", help="Column along the bottom: an option such as H, or parameters.")
@click.option("--y", default="accuracy", show_default=True, metavar="NAME", help="Column upwards: a metric.")
@click.option("--by", default="", metavar="NAMES", help="Columns that tell curves apart: d, or model,d.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only records with this value: N=50 or d=7,10.")
@click.option(
    "--fit", "laws", default="", metavar="LAWS", help="Fit linear, quadratic, power or piecewise, or several."
)
@click.option(
    "--ceiling", type=float, help="Where y saturates: a law is only asked to be at least there. [accuracy: 1]"
)
@click.option("--overlay", type=click.Path(path_type=Path), metavar="FILE.csv", help="Points to draw on top.")
@click.option("--bound", default="", metavar="NAME", help="Column to draw as a dotted line, such as proven_accuracy.")
@click.option("--log-x", is_flag=True, help="Logarithmic scale along the bottom.")
@click.option("--title", default="", help="Title of the figure.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("plot"), show_default=True,
              help="Name of the figure; without an ending, .png and .svg are made.")  # fmt: skip
@json_option
def plot(
    folders: tuple[Path, ...],
    x: str,
    y: str,
    by: str,
    where: tuple[str, ...],
    laws: str,
    ceiling: float | None,
    overlay: Path | None,
    bound: str,
    log_x: bool,
    title: str,
    out: Path,
    as_json: bool,
) -> None:
    """Plot any column of the records against any other.

    Columns are the options of models, tasks and protocols (H, N, steps; model.d where several have a
    d), sizes, metrics, and what is proven. The data behind the figure is written beside it as CSV.

    \b
    membench plot --x H --y accuracy --by d results/ --fit linear
    membench plot --x parameters --by model --where N=50 --log-x results/ --overlay mine.csv
    """
    from membench.analysis.claims import fit_rows, fitted_all
    from membench.analysis.columns import keep, require_columns, require_like, trial_frame
    from membench.analysis.curves import Overlay, Picture, curves, read_overlay
    from membench_leaderboard.sources import read_entries

    if out.suffix and out.suffix not in SUFFIXES:
        raise UsageError(f"cannot draw to '{out}': a name that ends in {', '.join(SUFFIXES)}, or in nothing, is needed")
    groups = [name.strip() for name in by.split(",") if name.strip()]
    entries, problems = read_entries(list(folders) or [Path("results")])
    for problem in problems:
        click.echo(f"membench: {problem}", err=True)
    frame = trial_frame(entry.record for entry in entries)
    if frame.empty:
        raise UsageError("there are no finished records to plot; make some with: membench run or membench sweep")
    frame = keep(frame, assignments(where))
    require_columns(frame, [x, y], numbers=True)
    require_columns(frame, [*groups, *([bound] if bound else [])])
    require_like(frame, x, groups)
    points = Overlay(overlay.name, read_overlay(overlay, x, y)) if overlay else None
    sentences: list[str] = []
    drawn = curves(frame, x, y, groups)
    if laws:
        drawn, sentences = fitted_all(drawn, [law.strip() for law in laws.split(",")], ceiling)
    picture = Picture(title, bound=bound, log_x=log_x, by=groups, overlay=points)
    suffixes = [out.suffix] if out.suffix else SUFFIXES[:2]
    paths = write_figure(drawn, picture, out.with_suffix("") if out.suffix else out, suffixes)
    if as_json:
        print_json({"files": [str(path) for path in paths], "fits": fit_rows(drawn)})
        return
    for sentence in sentences:
        click.echo(sentence)
    click.echo(f"wrote {', '.join(map(str, paths))}")
