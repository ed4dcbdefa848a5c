"""`membench baseline`: what later measurements will be compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from membench.commands.common import load_registry
from membench.commands.measuring import make_baseline, measure, suite_options
from membench.engine.execution import Execution
from membench.regress.baseline import default_path, write_baseline
from membench.regress.suite import load_suite, plan_suite


@click.group()
def baseline() -> None:
    """Write the baseline that `membench regress` compares with."""


@baseline.command()
@suite_options
def write(
    suite_name: str,
    path: Path | None,
    models: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    out: Path | None,
    execution: Execution,
    files: tuple[str, ...],
    block: tuple[str, ...],
    **_: Any,
) -> None:
    """Measure a suite and write its baseline, a small file to be committed.

    \b
    membench baseline write --suite smoke
    membench baseline write --suite smoke --model mine --plugin mine.py
    """
    suite = load_suite(suite_name)
    registry = load_registry(files, block)
    chosen = seeds or tuple(range(suite.seeds))
    plan = plan_suite(registry, suite, models, chosen)
    records = measure(plan, registry, execution, out)
    target = path or default_path(suite)
    write_baseline(target, make_baseline(suite, models, chosen, records))
    click.echo(f"wrote {target}: {len(plan.watch)} points, {len(records)} trials; commit it")
