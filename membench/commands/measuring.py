"""What `baseline` and `regress` share: their options, and measuring a suite from scratch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from membench.commands.common import parse_seeds, plugin_options
from membench.commands.execution import carry_out, execution_options
from membench.engine.execution import Execution
from membench.errors import PluginError
from membench.interface.registry import Registry
from membench.measure.environment import describe_git
from membench.records.record import Record
from membench.records.store import Store
from membench.regress.baseline import Baseline
from membench.regress.compare import samples
from membench.regress.suite import Plan, Suite

F = TypeVar("F", bound=Callable[..., Any])


def suite_options(command: F) -> F:
    """--suite, --baseline, --model, --seeds, --out, and those of every verb that runs trials."""
    for decorate in reversed(
        (
            click.option("--suite", "suite_name", default="smoke", show_default=True, metavar="NAME|FILE.toml",
                         help="What to measure."),
            click.option("--baseline", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                         help="The baseline; baselines/SUITE.json unless said."),
            click.option("--model", "models", multiple=True, metavar="NAME", callback=_names,
                         help="Only these architectures of the suite; several with commas."),
            click.option("--seeds", callback=_seeds, help="How many, or which, instead of the suite's."),
            click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
                         help="Keep the records here."),
            execution_options,
            plugin_options,
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


def _names(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def _seeds(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else parse_seeds(context, parameter, text)


def measure(plan: Plan, registry: Registry, execution: Execution, out: Path | None) -> list[Record]:
    """Run all of it, whatever records are there: a plugin's code can change without its trials' identity."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(out or Path(folder))
        store.check()
        try:
            return carry_out(plan.trials, store, registry, execution, plan.trials)
        except KeyboardInterrupt:
            click.echo("membench: interrupted; the baseline is as it was", err=True)
            raise SystemExit(130) from None


def make_baseline(suite: Suite, models: tuple[str, ...], seeds: tuple[int, ...], records: list[Record]) -> Baseline:
    """PluginError for failed trials: a baseline without them would never miss them."""
    fail_if_any(records)
    return Baseline(
        suite=suite.name,
        suite_version=suite.version,
        models=models,
        seeds=seeds,
        samples=tuple(samples(records)),
        git=describe_git(),
    )


def fail_if_any(records: list[Record]) -> None:
    failed = [record for record in records if not record.complete]
    if failed:
        first = failed[0]
        where = f"{first.architecture['name']} on {first.task['name']}, seed {first.seed}"
        raise PluginError(f"{len(failed)} of {len(records)} trials failed; the first: {where}: {first.error}")
