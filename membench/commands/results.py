"""`membench results`: folders of records are merged, checked and packed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from membench.commands._options import json_option
from membench.commands._output import print_json
from membench.printing import printable
from membench.records.store import Problem
from membench.verbs.results import Merged
from membench.verbs.results import check as check_records
from membench.verbs.results import merge as merge_records
from membench.verbs.results import pack as pack_records

_sources = click.argument("sources", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))


@click.group()
def results() -> None:
    """Merge, check and pack folders of records."""


@results.command()
@_sources
@click.option("--into", type=click.Path(path_type=Path), required=True, metavar="FOLDER",
              help="Where all of them go; a name that ends in .jsonl becomes a pack.")  # fmt: skip
@json_option
def merge(sources: tuple[Path, ...], into: Path, as_json: bool) -> None:
    """Bring the records of several folders or packs together, with their weights.

    Nothing is overwritten: of two records of one trial with different numbers, the first stays, the other is named,
    and the exit code is 3. Copies are fine, and so are the last digits of another machine.

    \b
    membench results merge machine-1/ machine-2/ --into all/
    membench results merge all.jsonl --into all/       a pack as files again
    """
    _show(merge_records(sources, into), as_json)


@results.command()
@_sources
@json_option
def check(sources: tuple[Path, ...], as_json: bool) -> None:
    """Read every record and say what is wrong with which; exit code 3 if anything is.

    Whether a file is a whole record, of the trial that it says, with its weights if it names some, and without another
    record of that trial that says otherwise. Whether the numbers are true is for membench verify.

    \b
    membench results check results/
    """
    checked = check_records(sources)
    if as_json:
        print_json(checked.as_json())
    else:
        _list(checked.problems)
        click.echo(f"{checked.records} records: " + ", ".join(f"{n} {word}" for word, n in checked.statuses.items()))
    checked.fail_if_any()


@results.command()
@_sources
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.jsonl", help="The pack to write.")
@json_option
def pack(sources: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Write many records as one file, which every verb reads in place of a folder.

    The records stay where they are. A pack has all of them but the weights, and is read several times faster. In a
    folder of its own it can be continued: run --out FOLDER finds the trials of the packs in it.

    \b
    membench results pack results/ --out packed/results.jsonl
    membench leaderboard packed/results.jsonl
    """
    _show(pack_records(sources, out), as_json)


def _show(merged: Merged, as_json: bool) -> None:
    if as_json:
        print_json(merged.as_json())
    else:
        _list([*merged.problems, *merged.conflicts])
        weights = f", {merged.weights} with weights" if merged.weights else ""
        click.echo(f"{merged.into}: {merged.added} records added{weights}, {merged.there} were there already")
    merged.fail_if_any()


def _list(problems: Sequence[Problem]) -> None:
    for one in problems:
        click.echo(printable(f"{one.source}: {one.reason}"))
