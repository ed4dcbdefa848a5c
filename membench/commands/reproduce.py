"""`membench reproduce`: the experiments of the paper, or of a file, from trials to figure, laws and verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from membench.commands.common import console, json_option, listing, load_registry, plugin_options, print_json
from membench.commands.execution import carry_out, execution_options, out_option
from membench.commands.figures import write_figure
from membench.commands.run import fail_if_any
from membench.commands.sweep import announce
from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.estimate import shuffled
from membench.interface.registry import Registry
from membench.plan import experiment as experiments
from membench.plan.experiment import Claim, Experiment
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store

if TYPE_CHECKING:
    from membench.analysis.claims import Verdict
    from membench.analysis.curves import Curve, Overlay

ALL = "all"
QUICK = "quick"
FEW = 3  # curves, of each of which a sentence is said


def _epilog() -> str:
    """The experiments, for --help; generated, so that it cannot drift."""
    lines = ["\b", "Experiments:"]
    for name in experiments.names():
        lines.append(f"  {name:<9} {experiments.load(name).title}")
    return "\n".join([*lines, f"  {ALL:<9} Each of them"])


@click.command(epilog=_epilog())
@click.argument("names", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--protocol", metavar="NAME", help="How weights are found: dana2024 as published, or converged.")
@click.option("--quick", is_flag=True, help="Tiny grids and the protocol quick: a minute or two for all of them.")
@click.option("--published", is_flag=True, help="Train nothing: use the records that came with membench.")
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds at each point, instead of the experiment's number.")
@click.option(
    "--figures", type=click.Path(path_type=Path), default=Path("figures"), show_default=True, help="Folder for figures."
)
@click.option("--overlay", type=click.Path(path_type=Path), metavar="FILE.csv", help="Points to draw on top.")
@execution_options
@out_option
@click.option("--dry-run", is_flag=True, help="Say how many trials would run and how long they take, and stop.")
@json_option
@plugin_options
def reproduce(
    names: tuple[str, ...],
    protocol: str | None,
    quick: bool,
    published: bool,
    seeds: int | None,
    figures: Path,
    overlay: Path | None,
    execution: Execution,
    out: Path,
    dry_run: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Run experiments of the paper, and see whether its claims hold.

    Trains what is missing, prints means with intervals, fits laws to the raw numbers of all seeds, and
    draws the figure (PNG and SVG, with its data as CSV). EXPERIMENT is a name or a TOML file.

    \b
    membench reproduce e1
    membench reproduce e1 --protocol converged     the same figure, measuring capacity
    membench reproduce e1 --published              without training, from records that came with membench
    membench reproduce mine.toml --overlay published.csv
    """
    if quick and published:
        raise UsageError("--quick trains tiny models, and --published trains none; leave out one of them")
    if quick and protocol:
        raise UsageError(f"--quick has a protocol of its own; leave out --protocol {protocol}")
    if overlay and len(names) + (names == (ALL,)) > 1:
        raise UsageError("--overlay draws on one figure; name one experiment")
    registry = load_registry(files, block)
    chosen = [experiments.load(name) for name in _expanded(names)]
    works = [_Work.of(one, QUICK if quick else protocol or one.protocol, registry, seeds) for one in chosen]
    _check_claims(chosen)
    store = Store(out)
    if dry_run:
        trials = _distinct([trial for work in works for trial in work.trials])
        pending = [trial for trial in trials if store.find(trial) is None]
        announce(len(trials), pending, registry, execution, as_json)
        return
    if not published:
        store.check()
    results = []
    for work in works:
        started = time.perf_counter()
        points = _overlay(work, overlay)  # before hours of training
        records = _published(work) if published else _trained(work, store, registry, execution)
        results.append(_conclude(work, records, points, figures, started))
        if not as_json:
            results[-1].show()
    if as_json:
        print_json([result.as_json() for result in results])
    fail_if_any([record for result in results for record in result.records])


def _check_claims(chosen: Sequence[Experiment]) -> None:
    from membench.analysis.claims import check_claim

    for experiment in chosen:
        try:
            check_claim(experiment.claim or Claim(text=""), experiment.figure.laws)
        except UsageError as error:
            raise UsageError(f"experiment '{experiment.name}': {error}") from None


def _expanded(names: Sequence[str]) -> list[str]:
    return experiments.names() if ALL in names else list(dict.fromkeys(names))


def _distinct(trials: Sequence[Trial]) -> list[Trial]:
    return list({(trial.point, trial.seed): trial for trial in trials}.values())


@dataclass(frozen=True)
class _Work:
    """An experiment with its trials, and the series that each point belongs to."""

    experiment: Experiment
    protocol: str
    trials: Sequence[Trial]
    series: dict[str, str]
    name: str  # of its figure

    @classmethod
    def of(cls, experiment: Experiment, protocol: str, registry: Registry, seeds: int | None) -> _Work:
        pairs = experiment.trials(registry, protocol, seeds)
        trials = shuffled(_distinct([trial for _, trial in pairs]))
        name = f"{experiment.name}-{protocol}" + (f"-{seeds}-seeds" if seeds else "")
        return cls(experiment, protocol, trials, {trial.id: series.name for series, trial in pairs}, name)


@dataclass(frozen=True)
class _Result:
    work: _Work
    records: Sequence[Record]
    curves: Sequence[Curve]
    sentences: Sequence[str]
    verdict: Verdict | None
    paths: Sequence[Path]
    seconds: float

    def show(self) -> None:
        experiment, out = self.work.experiment, console()
        out.print(
            f"[bold]{escape(experiment.name)}: {escape(experiment.title)}[/bold]  |  protocol {self.work.protocol}"
        )
        out.print(_means(self.curves))
        if len(self.curves) > FEW and any(curve.fits for curve in self.curves):
            out.print(_laws(self.curves, experiment.claim.law if experiment.claim else ""))
        else:
            for sentence in self.sentences:
                out.print(escape(sentence), soft_wrap=True)
        if self.verdict and experiment.claim:
            out.print(
                f"Claim: {escape(experiment.claim.text)}\n[bold]{escape(str(self.verdict))}[/bold]", soft_wrap=True
            )
        out.print(f"[dim]wrote {', '.join(map(str, self.paths))}[/dim]\n", soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        from membench.analysis.claims import fit_rows

        claim = self.work.experiment.claim
        return {
            "experiment": self.work.experiment.name,
            "protocol": self.work.protocol,
            "points": [
                {"curve": curve.name, **{str(k): v for k, v in row.items()}}
                for curve in self.curves
                for row in curve.points.to_dict("records")
            ],
            "fits": fit_rows(self.curves),
            "claim": claim.text if claim else None,
            "holds": self.verdict.holds if self.verdict else None,
            "reason": self.verdict.reason if self.verdict else None,
            "files": [str(path) for path in self.paths],
            "seconds": round(self.seconds, 1),
        }


def _overlay(work: _Work, path: Path | None) -> Overlay | None:
    from membench.analysis.curves import Overlay, read_overlay

    if path is None:
        return None
    experiment = work.experiment
    return Overlay(path.stem, read_overlay(path, experiment.figure.x, experiment.y(work.protocol)))


def _trained(work: _Work, store: Store, registry: Registry, execution: Execution) -> list[Record]:
    pending = [trial for trial in work.trials if store.find(trial) is None]
    return carry_out(work.trials, store, registry, execution, pending)


def _published(work: _Work) -> list[Record]:
    from membench_leaderboard.published import PAPER, published_records

    found = {(record.id, record.seed): record for record in published_records(PAPER)}
    there = [found[trial.id, trial.seed] for trial in work.trials if (trial.id, trial.seed) in found]
    missing = len(work.trials) - len(there)
    if missing:
        name = f"{work.experiment.name} with protocol {work.protocol}"
        raise UsageError(
            f"{missing} of the {len(work.trials)} trials of {name} are not published; run it without --published"
        )
    return there


def _conclude(
    work: _Work, records: Sequence[Record], overlay: Overlay | None, figures: Path, started: float
) -> _Result:
    from membench.analysis.claims import judge
    from membench.analysis.curves import Picture

    experiment, figure = work.experiment, work.experiment.figure
    curves, sentences = _analyse(work, records)
    picture = Picture(
        title=experiment.title,
        x_label=figure.x_label,
        y_label=figure.y_label,
        bound=figure.bound,
        log_x=figure.log_x,
        by=figure.by,
        overlay=overlay,
    )
    paths = write_figure(curves, picture, figures / work.name, (".png", ".svg"))
    verdict = judge(experiment.claim, curves) if experiment.claim else None
    return _Result(work, records, curves, sentences, verdict, paths, time.perf_counter() - started)


def _analyse(work: _Work, records: Sequence[Record]) -> tuple[list[Curve], list[str]]:
    """The curves of the figure, with their fits and a sentence on each."""
    from membench.analysis.claims import fitted_all, slopes
    from membench.analysis.columns import require_columns, trial_frame
    from membench.analysis.curves import curves

    figure, y = work.experiment.figure, work.experiment.y(work.protocol)
    frame = trial_frame(records)
    if frame.empty:
        fail_if_any(list(records))
    frame["series"] = frame["id"].map(work.series)
    require_columns(frame, [figure.x, y, *([figure.slope_over] if figure.slope_over else [])], numbers=True)
    require_columns(frame, [*figure.by, *([figure.bound] if figure.bound else [])])
    if figure.slope_over:
        frame, y = slopes(frame, figure.x, y, figure.slope_over, figure.by, figure.ceiling), "slope"
    found = curves(frame, figure.x, y, figure.by)
    if not figure.laws:
        return found, []
    ceiling = None if figure.slope_over else figure.ceiling
    try:
        return fitted_all(found, figure.laws, ceiling)
    except UsageError as error:  # must not cost the figure, nor the experiments that come after
        return found, [f"no law was fitted: {error}"]


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
