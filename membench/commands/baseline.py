"""`membench baseline`: what later measurements will be compared with."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import json_option, suite_options
from membench.commands._output import baseline_untouched, print_json
from membench.engine.execution import Execution
from membench.regress.gate import Gate
from membench.verbs.arguments import load_registry


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
    """Measure a suite and write its baseline, a small file to be committed.

    \b
    membench baseline write --suite smoke
    membench baseline write --suite smoke --model mine --plugin mine.py
    """
    registry = load_registry(files, block)
    gate = Gate.of(registry, suite_name, path=path, models=models, seeds=seeds, compared=False)
    with baseline_untouched():
        written = gate.write(execution, out)
    points, trials = len(written.samples), len(gate.plan.trials)
    if as_json:
        print_json({"baseline": str(gate.path), "points": points, "trials": trials})
        return
    words = f"{points} point{'' if points == 1 else 's'}, {trials} trials"
    click.echo(f"wrote {gate.path}: {words}; commit it")
