"""`membench compare`: any two sets of records, point by point and seed by seed."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import comparison_options
from membench.commands._output import check_writable, finish, publish
from membench.verbs.compare import WATCHED
from membench.verbs.compare import compare as compare_records


@click.command()
@click.argument("old", type=click.Path(readable=False, path_type=Path))
@click.argument("new", type=click.Path(readable=False, path_type=Path))
@click.option(
    "--watch",
    "watched",
    multiple=True,
    default=WATCHED,
    show_default=True,
    metavar="METRIC[=LOSS]",
    help="A metric to compare, and the smallest loss that counts.",
)
@comparison_options
def compare(
    old: Path,
    new: Path,
    watched: tuple[str, ...],
    strict: bool,
    markdown: Path | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Compare two sets of records; exit code 1 if capacity was lost.

    NEW is compared with OLD: points are matched by id, and seeds by number.

    \b
    membench compare old-results/ new-results/
    membench compare old-results/ new-results/ --watch accuracy=0.02 --watch bits_per_parameter
    """
    check_writable(markdown, junit)
    comparisons = compare_records(old, new, watch=watched)
    publish(comparisons, f"{new} against {old}", [], markdown=markdown, junit=junit, as_json=as_json)
    finish(comparisons, strict)
