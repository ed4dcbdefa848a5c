"""`membench submit`: gather records and their weights in a folder for a pull request."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import json_option
from membench.commands._output import print_json
from membench.verbs.submit import submit as gather


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(readable=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=Path("submission"), show_default=True,
              help="Folder to create.")  # fmt: skip
@click.option("--without-weights", is_flag=True, help="Include records without weights; they stay self-reported.")
@json_option
def submit(folders: tuple[Path, ...], out: Path, without_weights: bool, as_json: bool) -> None:
    """Gather records and their weights for a pull request.

    Copies the complete records in FOLDERS (./results by default), with their weights, a summary, and the plugin files
    that they were made with, which nobody else has.

    \b
    membench run --model aot --task bigram --keep-weights
    membench submit results/ --out submission/
    membench verify submission/
    """
    made = gather(folders, out, without_weights=without_weights)
    if as_json:
        counts = {"records": made.records, "with_weights": made.with_weights}
        print_json({"folder": str(made.folder), "new": made.new, **counts, "plugins": list(made.plugins)})
        return
    words = "are now" if made.new else "were already"
    click.echo(f"{made.records} records, {made.with_weights} with weights, {words} in {made.folder}")
    brought = "".join(f" --plugin {target}" for target in made.plugins)
    click.echo(f"Next: membench verify {made.folder}{brought}")
