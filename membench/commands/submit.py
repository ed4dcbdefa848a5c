"""`membench submit`: gather records and their weights in a folder for a pull request."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands.common import json_option, print_json


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=Path("submission"), show_default=True,
              help="Folder to make.")  # fmt: skip
@click.option("--without-weights", is_flag=True, help="Take records without weights too; they stay self-reported.")
@json_option
def submit(folders: tuple[Path, ...], out: Path, without_weights: bool, as_json: bool) -> None:
    """Gather records and their weights for a pull request.

    Copies the complete records below FOLDERS (by default ./results), with their weights and a summary.

    \b
    membench run --model aot --task bigram --keep-weights
    membench submit results/ --out submission/
    membench verify submission/
    """
    from membench.verify.submission import gather, summarise, write

    entries, problems = gather(list(folders) or [Path("results")], without_weights)
    for problem in problems:
        click.echo(f"membench: {problem}", err=True)
    new = write(entries, out, summarise(entries))
    kept = sum(entry.weights is not None for entry in entries)
    if as_json:
        print_json({"folder": str(out), "new": new, "records": len(entries), "with_weights": kept})
        return
    click.echo(f"{len(entries)} records, {kept} with weights, {'are now' if new else 'were already'} in {out}")
    click.echo(f"Next: membench verify {out}")
