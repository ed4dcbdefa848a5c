"""`membench baseline`: what later measurements will be compared with."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import json_option, suite_options
from membench.commands._output import baseline_untouched, print_json
from membench.engine.execution import Execution
from membench.verbs.arguments import load_registry
from membench.verbs.baseline import write as write_baseline


@click.group()
def baseline() -> None:
    """Write the baseline that `membench regress` compares with."""


@baseline.command()
@suite_options
@json_option
def write(
    suite_name: str,
    path: Path | None,
    models: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    out: Path | None,
    execution: Execution,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Measure a suite and write its baseline, a small file to commit.

    \b
    membench baseline write --suite smoke
    membench baseline write --suite smoke --model mine --plugin mine.py
    """
    registry = load_registry(files, block)
    with baseline_untouched():
        made = write_baseline(suite_name, registry, execution, path=path, models=models, seeds=seeds, out=out)
    if as_json:
        print_json({"baseline": str(made.path), "points": made.points, "trials": made.trials})
        return
    words = f"{made.points} point{'' if made.points == 1 else 's'}, {made.trials} trials"
    click.echo(f"wrote {made.path}: {words}; commit it")
