"""`membench regress`: measure a suite again, and fail if capacity was lost."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import comparison_options, suite_options
from membench.commands._output import baseline_untouched, check_writable, finish, publish
from membench.engine.execution import Execution
from membench.regress.gate import Gate, fail_if_any
from membench.verbs.arguments import load_registry


@click.command()
@suite_options
@click.option("--require-baseline", is_flag=True, help="Fail if there is no baseline, instead of writing one.")
@comparison_options
def regress(
    suite_name: str,
    path: Path | None,
    models: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    out: Path | None,
    execution: Execution,
    require_baseline: bool,
    strict: bool,
    markdown: Path | None,
    junit: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Measure a suite again; exit code 1 if capacity was lost.

    Architectures and seeds are those of the baseline by default. Without a baseline one is written. Seconds are
    never compared.

    \b
    membench regress --suite smoke
    membench regress --suite smoke --markdown report.md
    """
    check_writable(markdown, junit)
    registry = load_registry(files, block)
    gate = Gate.of(registry, suite_name, path=path, models=models, seeds=seeds, required=require_baseline)
    with baseline_untouched():
        checked = gate.check(execution, out)
    publish(checked.comparisons, gate.heading, gate.notes, markdown=markdown, junit=junit, as_json=as_json)
    finish(checked.comparisons, strict)
    fail_if_any(checked.records)
