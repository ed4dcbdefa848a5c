"""`membench regress`: measure a suite again, and fail if capacity was lost."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands._options import comparison_options, suite_options
from membench.commands._output import baseline_untouched, check_writable, finish, publish
from membench.engine.execution import Execution
from membench.verbs.arguments import load_registry
from membench.verbs.regress import fail_if_any
from membench.verbs.regress import regress as measure_again


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

    By default, architectures and seeds are those of the baseline. If there is no baseline, one is
    written. Timings are never compared.

    \b
    membench regress --suite smoke
    membench regress --suite smoke --markdown report.md
    """
    check_writable(markdown, junit)
    registry = load_registry(files, block)
    with baseline_untouched():
        done = measure_again(
            suite_name, registry, execution, path=path, models=models, seeds=seeds, required=require_baseline, out=out
        )
    publish(done.comparisons, done.heading, done.notes, markdown=markdown, junit=junit, as_json=as_json)
    finish(done.comparisons, strict)
    fail_if_any(done.records)
