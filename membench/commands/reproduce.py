"""`membench reproduce`: the experiments of the paper, or of a file, from trials to figure, laws and verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from membench.commands._options import (
    execution_options,
    json_option,
    out_option,
    plugin_options,
    shard_option,
    track_option,
)
from membench.commands._output import announce, announce_array, listing, print_json
from membench.engine.execution import Execution
from membench.execute.run import Run, fail_if_any
from membench.plan import experiment as experiments
from membench.plan.shard import Shard
from membench.printing import console
from membench.records.record import Record
from membench.verbs.arguments import load_registry
from membench.verbs.reproduce import ALL, conclude, prepare, run_of
from membench.verbs.run import carry_out

if TYPE_CHECKING:
    from membench.analysis.curves import Curve
    from membench.analysis.reproduce import Reproduction

FEW = 3  # curves, of each of which a sentence is said


def _epilog() -> str:
    """The experiments, for --help; generated, so that it cannot drift."""
    lines = ["\b", "Experiments:"]
    for name in experiments.names():
        lines.append(f"  {name:<13} {experiments.load(name).title}")
    return "\n".join([*lines, f"  {ALL:<13} All of them"])


@click.command(epilog=_epilog())
@click.argument("names", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--protocol", metavar="NAME", help="How weights are found: dana2024 as published, or converged.")
@click.option("--quick", is_flag=True, help="Tiny grids and the protocol quick: a minute or two for all of them.")
@click.option("--published", is_flag=True, help="Train nothing: use the records shipped with membench.")
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds per point, instead of the experiment's number.")
@click.option("--metric", metavar="NAME", help="Metric to show, such as accuracy, instead of the experiment's.")
@click.option(
    "--figures", type=click.Path(path_type=Path), default=Path("figures"), show_default=True, help="Folder for figures."
)
@click.option("--overlay", type=click.Path(path_type=Path), metavar="FILE.csv", help="Extra points to draw.")
@execution_options
@track_option
@shard_option
@out_option
@click.option("--dry-run", is_flag=True, help="Show how many trials would run and for how long, then exit.")
@json_option
@plugin_options
def reproduce(
    names: tuple[str, ...],
    protocol: str | None,
    quick: bool,
    published: bool,
    seeds: int | None,
    metric: str | None,
    figures: Path,
    overlay: Path | None,
    execution: Execution,
    shard: Shard | None,
    out: Path,
    dry_run: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Run the paper's experiments and check whether its claims hold.

    Trains what is missing, prints means with intervals, fits laws to the raw numbers of all seeds, and
    draws the figure (PNG and SVG, with its data as CSV). EXPERIMENT is a name or a TOML file.

    \b
    membench reproduce e1
    membench reproduce e1 --protocol converged     the same figure, trained for the most facts
    membench reproduce e1 --published              no training: from the records shipped with membench
    membench reproduce mine.toml --overlay published.csv
    """
    registry = load_registry(files, block)
    planned = prepare(
        registry,
        names,
        protocol=protocol,
        quick=quick,
        published=published,
        seeds=seeds,
        overlay=overlay,
        metric=metric,
    )
    if dry_run:
        announce(run_of(planned, registry, execution, out, shard), as_json)
        announce_array(shard)
        return
    if shard is not None:
        _run_shard(run_of(planned, registry, execution, out, shard), as_json)
        return
    as_data: list[dict[str, Any]] = []
    records: list[Record] = []
    for one in planned:
        started = time.perf_counter()
        reproduction = conclude(one, registry, execution, out, published=published)
        written = [str(path) for path in reproduction.write(figures)]
        seconds = round(time.perf_counter() - started, 1)
        records += reproduction.records
        as_data.append({**reproduction.as_json(), "files": written, "seconds": seconds})
        if not as_json:
            _show(reproduction, written)
    if as_json:
        print_json(as_data)
    fail_if_any(records)


def _run_shard(planned: Run, as_json: bool) -> None:
    """A part of the records concludes nothing: whoever has all of them runs the command without --shard."""
    results = carry_out(planned)
    if as_json:
        print_json({"trials": len(results), "ran": results.ran, "records": str(results.folder)})
    else:
        click.echo(f"{results.ran} trials run, {len(results) - (results.ran or 0)} reused from {results.folder}")
        click.echo("with the records of all shards, the same command without --shard draws the figures")
    fail_if_any(results.records)


def _show(reproduction: Reproduction, written: Sequence[str]) -> None:
    experiment, out = reproduction.experiment, console()
    title = f"{escape(experiment.name)}: {escape(experiment.title)}"
    out.print(f"[bold]{title}[/bold]  |  protocol {reproduction.planned.protocol}")
    out.print(_means(reproduction.curves))
    if len(reproduction.curves) > FEW and any(curve.fits for curve in reproduction.curves):
        out.print(_laws(reproduction.curves, experiment.claim.law if experiment.claim else ""))
    else:
        for sentence in reproduction.sentences:
            out.print(escape(sentence), soft_wrap=True)
    if reproduction.verdict and experiment.claim:
        out.print(
            f"Claim: {escape(experiment.claim.text)}\n[bold]{escape(str(reproduction.verdict))}[/bold]", soft_wrap=True
        )
    out.print(f"[dim]wrote {escape(', '.join(written))}[/dim]\n", soft_wrap=True)


def _means(curves: Sequence[Curve]) -> Table:
    """Means with the larger half of their intervals: the shorter of the two axes goes across."""
    largest = max(curve.points["mean"].abs().max() for curve in curves)
    digits = 1 if largest > 10 else 3 if largest > 0.2 else 4
    cells = {
        (curve.name, row[curve.x]): _cell(row, digits) for curve in curves for row in curve.points.to_dict("records")
    }
    names = [curve.name for curve in curves]
    places = sorted({place for _, place in cells})
    x = curves[0].x
    if 2 * len(cells) <= len(places) * len(names):  # the curves have hardly an x in common
        table = listing("", "", x, curves[0].y)
        for (name, place), cell in cells.items():
            table.add_row(escape(name), f"{place:,g}", cell)
    elif len(places) <= 8 and len(names) > 1:
        table = listing("", "", *(f"{x}={place:g}" for place in places))
        for name in names:
            table.add_row(escape(name), *(cells.get((name, place), "") for place in places))
    else:
        table = listing("", x, *(escape(name or curves[0].y) for name in names))
        for place in places:
            table.add_row(f"{place:g}", *(cells.get((name, place), "") for name in names))
    table.padding = (0, 1, 0, 0)
    return table


def _cell(row: Any, digits: int) -> str:
    mean, half = row["mean"], max(row["high"] - row["mean"], row["mean"] - row["low"])
    spread = f"±{half:.{digits}f}".replace("±0.", "±.") if half == half else ""
    return f"{mean:.{digits}f}".removeprefix("0") + spread


def _laws(curves: Sequence[Curve], wanted: str) -> Table:
    """For many curves, the parameters of one law, and how far it is behind the best."""
    law = wanted or curves[0].fits[0].law
    shown = [one for curve in curves for one in curve.fits if one.law == law]
    names = [name for name in shown[0].parameters if name != "offset"] if shown else []
    table = listing("", "", *(f"{name} (95 %)" for name in names), "best law", "AIC behind")
    for curve in curves:
        one = next((one for one in curve.fits if one.law == law), None)
        if one is None or not curve.fits:
            table.add_row(escape(curve.name), *["-"] * len(names), curve.fits[0].law if curve.fits else "-", "-")
            continue
        cells = [
            f"{one.parameters[name]:.3g} ({one.intervals[name][0]:.3g} to {one.intervals[name][1]:.3g})"
            for name in names
        ]
        table.add_row(escape(curve.name), *cells, curve.fits[0].law, f"{one.aicc - curve.fits[0].aicc:.1f}")
    table.title = f"{law} law"
    return table
