"""`membench new`: a plugin package to start from."""

from __future__ import annotations

from pathlib import Path

import click

from membench.errors import UsageError
from membench.verbs.arguments import load_registry
from membench.verbs.new import new as write_package


@click.command()
@click.argument("name")
@click.option("--task", "task", is_flag=True, help="A task instead of an architecture.")
@click.option("--bound", "bound", is_flag=True, help="A bound instead of an architecture.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="By default membench-NAME.")
def new(name: str, task: bool, bound: bool, out: Path | None) -> None:
    """Make a plugin package: an architecture, a task or a bound.

    It is complete: it installs, its tests pass, and its CI fails when capacity is lost. Replace what it does
    with your own.

    \b
    membench new my-arch
    cd membench-my-arch && pip install -e '.[test]' && pytest
    membench run --model my-arch --task bigram
    """
    if task and bound:
        raise UsageError("--task and --bound make two kinds of plugin; choose one of them")
    kind = "task" if task else "bound" if bound else "architecture"
    written = write_package(name, kind, out, load_registry())
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(f"Next: cd {out or f'membench-{name}'} && pip install -e '.[test]' && pytest")
