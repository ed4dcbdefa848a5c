"""`membench regress`: measure a suite again, and fail if capacity was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from membench.commands.common import load_registry
from membench.commands.comparison import check_writable, finish, output_options, publish
from membench.commands.measuring import fail_if_any, make_baseline, measure, suite_options
from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.measure.metrics import GATED
from membench.regress.baseline import Baseline, default_path, read_baseline, write_baseline
from membench.regress.compare import Comparisons, Sample, Watch, compare, samples
from membench.regress.exact_tests import seeds_needed
from membench.regress.suite import Plan, Suite, load_suite, plan_suite


@click.command()
@suite_options
@click.option("--require-baseline", is_flag=True, help="Fail if there is no baseline, instead of writing one.")
@output_options
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
    suite = load_suite(suite_name)
    target = path or default_path(suite)
    check_writable(markdown, junit)
    old = _baseline(target, suite, require_baseline)
    registry = load_registry(files, block)
    if old:
        models, seeds = models or old.models, seeds or old.seeds
    chosen = seeds or tuple(range(suite.seeds))
    plan = plan_suite(registry, suite, models, chosen)
    records = measure(plan, registry, execution, out)
    if old is None:
        write_baseline(target, make_baseline(suite, models, chosen, records))
        heading = f"{suite.name} v{suite.version}: there was no baseline"
        words = f"Wrote {target}: commit it, and the next run compares with it."
        publish(Comparisons(()), heading, [words], markdown=markdown, junit=junit, as_json=as_json)
        return
    found = compare(_asked(old.samples, plan, models), samples(records), _watch(plan))
    heading = f"{suite.name} v{suite.version} against {target}"
    publish(found, heading, _notes(plan, chosen), markdown=markdown, junit=junit, as_json=as_json)
    finish(found, strict)
    fail_if_any(records)


def _baseline(path: Path, suite: Suite, required: bool) -> Baseline | None:
    if path.exists():
        return read_baseline(path, suite)
    if required:
        raise UsageError(
            f"there is no baseline '{path}'; write it with: membench baseline write --suite {suite.source}, "
            "and the other options as here"
        )
    return None


def _asked(old: Iterable[Sample], plan: Plan, models: tuple[str, ...]) -> list[Sample]:
    """What the baseline has of the architectures that were asked for; others are not missed."""
    return [one for one in old if one.id in plan.watch or not models or one.architecture in models]


def _watch(plan: Plan) -> Callable[[Sample], Watch]:
    """What the suite watches; of a point that it no longer has, one metric, so that it is missed once."""
    missed = {"accuracy": GATED["accuracy"]}
    return lambda sample: plan.watch.get(sample.id, missed)


def _notes(plan: Plan, seeds: tuple[int, ...]) -> list[str]:
    needed = seeds_needed(plan.comparisons)
    if len(seeds) >= needed:
        return []
    return [
        f"Note: {len(seeds)} seeds are few for {plan.comparisons} comparisons: a loss in all of them at once could not "
        f"be told from noise; {needed} seeds could."
    ]
