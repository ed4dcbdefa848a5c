"""`membench bounds`: what theory says of an architecture on a task, without training anything."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from membench.commands.common import console, json_option, listing, load_registry, plugin_options, print_json
from membench.errors import UsageError
from membench.interface.bound import Bound, Setting
from membench.interface.facts import draw_facts
from membench.interface.options import label
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.theory.evaluate import BoundValue, evaluate_bounds


@click.command()
@click.option("--model", required=True, metavar="NAME", help="Architecture.")
@click.option("--task", required=True, metavar="NAME", help="Task.")
@click.option(
    "-M", "model_options", multiple=True, metavar="NAME=VALUE", help="Architecture option; grids make columns."
)
@click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option, in the same way.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the facts.")
@click.option("--expensive", is_flag=True, help="Also those that take seconds: floors and optimised frames.")
@click.option("--markdown", is_flag=True, help="Print Markdown, with formulas.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the bounds over a grid.")
@json_option
@plugin_options
def bounds(
    model: str,
    task: str,
    model_options: tuple[str, ...],
    task_options: tuple[str, ...],
    seed: int,
    expensive: bool,
    markdown: bool,
    plot: Path | None,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Show what is proven of an architecture on a task.

    Every bound that speaks of the architecture comes with its value, or with the reason why it has none.
    A guarantee is reached by some weights, a limit is exceeded by none; an order is known up to a
    constant only, and nothing passes or fails it.

    \b
    membench bounds --model aot --task bigram
    membench bounds --model aot --task bigram -M H=1:31:5 --plot bounds.png
    """
    registry = load_registry(files, block)
    registry.architecture(model)  # one name: bounds of several models would not fit one table
    trials = plan(registry, Request([model], [task], model_options, task_options, seeds=(seed,)))
    known = {bound.name: bound for bound in registry.bounds if bound.architecture in (None, model)}
    columns = [(trial, _evaluate(registry, trial, expensive)) for trial in trials]
    _say_if_general(model, known)
    if plot:
        from membench.analysis.bounds_plot import draw_bounds

        click.echo(f"wrote {draw_bounds(_points(columns), known, plot)}", err=True)
    if as_json:
        print_json([_as_json(trial, values, known) for trial, values in columns])
    elif markdown:
        click.echo("\n\n".join(_markdown(trial, values, known) for trial, values in columns))
    elif len(columns) == 1:
        for table in _one(*columns[0], known):
            console().print(table)
    else:
        console().print(_many(columns))


def _say_if_general(model: str, known: dict[str, Bound]) -> None:
    if not any(bound.architecture == model for bound in known.values()):
        click.echo(f"membench: no bound speaks of '{model}' alone; these hold for every model", err=True)


def _evaluate(registry: Registry, trial: Trial, expensive: bool) -> list[BoundValue]:
    facts = draw_facts(trial.task, trial.task_config, trial.seed)
    setting = Setting(trial.architecture.name, trial.config, facts, *_parameters_and_bits(trial))
    return evaluate_bounds(registry.bounds, setting, expensive=expensive)


def _parameters_and_bits(trial: Trial) -> tuple[int, int]:
    """Counted from a built module, as a trial's are; and the bits of each."""
    from membench.measure.size import float_bits, measure_size

    shape = trial.task.shape(trial.task_config)
    module = trial.architecture.build(shape, trial.config)
    return measure_size(module, shape).parameters, float_bits(module.state_dict())


def _one(trial: Trial, values: list[BoundValue], known: dict[str, Bound]) -> tuple[Table, Table]:
    """What the bounds say, and a table of those that say nothing here and why."""
    title = f"{trial.architecture.name} ({label(trial.config)}) on {trial.task.name} ({label(trial.task_config)})"
    speaking = listing(escape(title), "bound", "says", "by")
    silent = listing("\nSilent here", "bound", "why")
    for value in values:
        bound = known[value.name]
        if value.status == "applies":
            speaking.add_row(value.name, _says(value, bound), escape(bound.formula), style=_style(bound))
        else:
            silent.add_row(value.name, escape(value.reason or ""), style="dim")
    return speaking, silent


def _says(value: BoundValue, bound: Bound) -> str:
    sign = {"lower": ">=", "upper": "<=", "baseline": "="}[value.direction]
    average = ", on average" if value.expected else ""
    only = f", for {escape(value.restricted_to)}" if value.restricted_to else ""
    return f"{value.quantity.replace('_', ' ')} {sign} {value.value:.6g}\n[dim]{bound.claim}{average}{only}[/dim]"


def _style(bound: Bound) -> str | None:
    return {"guarantee": "green", "limit": "red"}.get(bound.claim)


def _many(columns: list[tuple[Trial, list[BoundValue]]]) -> Table:
    names = [value.name for value in columns[0][1]]
    table = listing("Values by grid point", "bound", *(_differing(columns, i) for i in range(len(columns))))
    found = [{value.name: value for value in values} for _, values in columns]
    for name in names:
        cells = [_cell(values[name]) for values in found]
        if any(cell != "-" for cell in cells):
            table.add_row(name, *cells)
    return table


def _cell(value: BoundValue) -> str:
    return "-" if value.value is None or value.status != "applies" else f"{value.value:.3g}"


def _differing(columns: list[tuple[Trial, list[BoundValue]]], index: int) -> str:
    """What sets a grid point apart from the others, in a few words."""
    points = [{**asdict(trial.config), **asdict(trial.task_config)} for trial, _ in columns]
    varying = [name for name in points[0] if len({point[name] for point in points}) > 1]
    return "\n".join(f"{name}={points[index][name]}" for name in varying)


def _points(columns: list[tuple[Trial, list[BoundValue]]]) -> list[tuple[dict[str, Any], list[BoundValue]]]:
    points = [({**asdict(trial.config), **asdict(trial.task_config)}, values) for trial, values in columns]
    if len(points) < 2:
        raise UsageError("a plot of bounds needs a grid, such as -M H=1:31")
    return points


def _as_json(trial: Trial, values: list[BoundValue], known: dict[str, Bound]) -> dict[str, Any]:
    return {
        "model": trial.architecture.name,
        "config": asdict(trial.config),
        "task": trial.task.name,
        "task_config": asdict(trial.task_config),
        "seed": trial.seed,
        "bounds": [{**asdict(value), **_statement(known[value.name])} for value in values],
    }


def _statement(bound: Bound) -> dict[str, Any]:
    keys = ("claim", "summary", "formula", "latex", "reference")
    return {key: getattr(bound, key) for key in keys}


def _markdown(trial: Trial, values: list[BoundValue], known: dict[str, Bound]) -> str:
    from tabulate import tabulate

    rows = [
        {
            "bound": value.name,
            "of": value.quantity,
            "claim": known[value.name].claim,
            "value": "-" if value.value is None else f"{value.value:.6g}",
            "formula": f"${known[value.name].latex}$" if known[value.name].latex else known[value.name].formula,
            "note": value.reason or "",
            "reference": known[value.name].reference,
        }
        for value in values
    ]
    title = f"### {trial.architecture.name} ({label(trial.config)}) on {trial.task.name} ({label(trial.task_config)})"
    escaped = [{key: cell.replace("|", "\\|") for key, cell in row.items()} for row in rows]
    return f"{title}\n\n{tabulate(escaped, headers='keys', tablefmt='github', disable_numparse=True)}"
