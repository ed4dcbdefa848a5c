"""`membench plot`: any column of the records against any other, with fitted laws and anybody's points on top."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import json_option
from membench.commands._output import print_json
from membench.interface.options import assignments
from membench.verbs.plot import plot as draw


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(readable=False, path_type=Path))
@click.option("--x", required=True, metavar="NAME", help="Column for the x axis: an option such as H, or parameters.")
@click.option("--y", default="accuracy", show_default=True, metavar="NAME", help="Column for the y axis: a metric.")
@click.option("--by", default="", metavar="NAMES", help="Columns that separate the curves: d, or model,d.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only records with this value: N=50 or d=7,10.")
@click.option(
    "--fit",
    "laws",
    default="",
    metavar="LAWS",
    help="Laws to fit: linear, quadratic, power, piecewise (comma-separated).",
)
@click.option("--ceiling", type=float, help="Where y saturates: points there count as 'at least this'. [accuracy: 1]")
@click.option("--overlay", type=click.Path(path_type=Path), metavar="FILE.csv", help="Extra points to draw.")
@click.option("--bound", default="", metavar="NAME", help="Column to draw as a dotted line, such as proven_accuracy.")
@click.option("--log-x", is_flag=True, help="Logarithmic x axis.")
@click.option("--title", default="", help="Title of the figure.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("plot"), show_default=True,
              help="Name of the figure; without a suffix, both .png and .svg are written.")  # fmt: skip
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
    drawn, paths = draw(
        folders, out, x, y, by=by, where=assignments(where), fit=laws, ceiling=ceiling, overlay=overlay, bound=bound,
        log_x=log_x, title=title, show=True,
    )  # fmt: skip
    if as_json:
        from membench.analysis.claims import fit_rows

        print_json({"files": [str(path) for path in paths], "fits": fit_rows(drawn.curves)})
        return
    for sentence in drawn.sentences:
        click.echo(sentence)
    click.echo(f"wrote {', '.join(map(str, paths))}")
