"""An experiment from its trials to curves, laws and a verdict on its claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.analysis.claims import (
    Beside,
    Verdict,
    beside,
    check_claim,
    fit_rows,
    fitted_all,
    judge,
    most_facts,
    peaks,
    slopes,
)
from membench.analysis.curves import Curve, Overlay, Picture, curves, read_overlay
from membench.analysis.figures import Plot
from membench.analysis.tables import as_html, as_text, with_interval
from membench.analysis.trial_frame import require_columns, trial_frame
from membench.errors import UsageError, unknown
from membench.execute.estimate import shuffled
from membench.execute.progress import counting
from membench.execute.run import fail_if_any
from membench.interface.registry import Registry
from membench.measure.metrics import METRICS
from membench.plan.experiment import Claim, Experiment
from membench.plan.trial import Trial
from membench.records.record import Record

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment with its trials, and the series that each point belongs to."""

    experiment: Experiment
    protocol: str
    trials: Sequence[Trial]
    series: Mapping[str, str]  # by the id of a point
    name: str  # of its figure
    y: str  # the metric that is shown
    overlay: Overlay | None = None

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        registry: Registry,
        *,
        protocol: str | None = None,
        seeds: int | None = None,
        metric: str | None = None,
        overlay: Path | None = None,
    ) -> PlannedExperiment:
        """Every mistake is found here, before anything is trained: UsageError."""
        protocol = protocol or experiment.protocol
        if metric is not None and metric not in METRICS:
            raise unknown("metric", metric, METRICS, f"there are: {', '.join(METRICS)}")
        y = metric or experiment.y(protocol)
        pairs = experiment.trials(registry, protocol, seeds)
        try:
            check_claim(experiment.claim or Claim(text=""), experiment.figure.laws)
        except UsageError as error:
            raise UsageError(f"experiment '{experiment.name}': {error}") from None
        return cls(
            experiment,
            protocol,
            shuffled(distinct(trial for _, trial in pairs)),
            {trial.id: series.name for series, trial in pairs},
            "-".join(
                [experiment.name, protocol, *([f"{seeds}-seeds"] if seeds else []), *([metric] if metric else [])]
            ),
            y,
            _overlay(overlay, experiment, y),
        )

    def among(self, records: Iterable[Record]) -> list[Record]:
        """The records of its trials. UsageError when some are not there."""
        by_trial = {(record.id, record.seed): record for record in records}
        there = [by_trial[trial.id, trial.seed] for trial in self.trials if (trial.id, trial.seed) in by_trial]
        missing = len(self.trials) - len(there)
        if missing:
            name = f"{self.experiment.name} with protocol {self.protocol}"
            raise UsageError(
                f"{missing} of the {len(self.trials)} trials of {name} are not published; run it without --published"
            )
        return there


def distinct(trials: Iterable[Trial]) -> list[Trial]:
    """Each trial once: experiments share some."""
    return list({(trial.point, trial.seed): trial for trial in trials}.values())


def _overlay(path: Path | None, experiment: Experiment, y: str) -> Overlay | None:
    if path is None and experiment.published:
        import pandas as pd

        return Overlay(experiment.published.name, pd.DataFrame(experiment.published.points))
    if path is None:
        return None
    return Overlay(path.stem, read_overlay(path, experiment.figure.x, y))


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What the records of an experiment say."""

    planned: PlannedExperiment
    records: Sequence[Record]
    curves: Sequence[Curve]
    sentences: Sequence[str]  # on the laws that were fitted
    verdict: Verdict | None  # on the claim, if there is one

    @classmethod
    def of(cls, planned: PlannedExperiment, records: Sequence[Record], *, show: bool = False) -> Reproduction:
        """With `show`, progress is shown while laws are fitted."""
        drawn, sentences = _analysed(planned, records, show)
        claim = planned.experiment.claim
        return cls(
            planned,
            records,
            drawn,
            sentences,
            judge(claim, drawn, planned.overlay, planned.experiment.figure.by) if claim else None,
        )

    @property
    def experiment(self) -> Experiment:
        return self.planned.experiment

    @property
    def beside(self) -> list[Beside]:
        """What was published, with what was measured at the same places."""
        claim, figure = self.experiment.claim, self.experiment.figure
        return beside(claim, self.curves, self.planned.overlay, figure.by) if claim else []

    @property
    def failed(self) -> list[Record]:
        return [record for record in self.records if not record.complete]

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each trial."""
        return _frame(self.planned, self.records)

    def summary(self) -> pd.DataFrame:
        """One row for each point of each curve: mean, interval and number of seeds."""
        import pandas as pd

        tables = [curve.points for curve in self.curves]
        for curve, table in zip(self.curves, tables, strict=True):
            table.insert(0, "curve", curve.name)
        return pd.concat(tables, ignore_index=True)

    @property
    def drawing(self) -> Plot:
        """Its figure, to be shown or written."""
        figure = self.experiment.figure
        picture = Picture(
            title=self.experiment.title,
            x_label=figure.x_label,
            y_label=figure.y_label,
            bound=figure.bound,
            log_x=figure.log_x,
            by=figure.by,
            overlay=self.planned.overlay,
        )
        return Plot(self.curves, picture, self.sentences)

    def plot(self) -> Figure:
        """The figure; nothing is written."""
        return self.drawing.figure()

    def write(self, folder: Path) -> list[Path]:
        """The figure as PNG and SVG, with its data as CSV."""
        return self.drawing.write(folder / self.planned.name, (".png", ".svg"))

    def as_json(self) -> dict[str, Any]:
        claim = self.experiment.claim
        return {
            "experiment": self.experiment.name,
            "protocol": self.planned.protocol,
            "points": [
                {"curve": curve.name, **{str(k): v for k, v in row.items()}}
                for curve in self.curves
                for row in curve.points.to_dict("records")
            ],
            "fits": fit_rows(self.curves),
            "claim": claim.text if claim else None,
            "holds": self.verdict.holds if self.verdict else None,
            "reason": self.verdict.reason if self.verdict else None,
        }

    @property
    def title(self) -> str:
        return f"{self.experiment.name}: {self.experiment.title}, protocol {self.planned.protocol}"

    @property
    def notes(self) -> list[str]:
        """The laws, the claim and whether it holds."""
        claim = self.experiment.claim
        return [*self.sentences, *([f"Claim: {claim.text}", str(self.verdict)] if claim else [])]

    def __repr__(self) -> str:
        return as_text(self.title, self._table(), self.notes)

    def _repr_html_(self) -> str:
        return as_html(self.title, self._table(), self.notes)

    def _table(self) -> pd.DataFrame:
        rows = self.summary()
        rows[self.curves[0].y] = [with_interval(*row) for row in rows[["mean", "low", "high"]].to_numpy(float)]
        return rows.drop(columns=["mean", "low", "high"])


def _frame(planned: PlannedExperiment, records: Sequence[Record]) -> pd.DataFrame:
    frame = trial_frame(records)
    if frame.empty:
        fail_if_any(records)
    frame["series"] = frame["id"].map(planned.series)
    return frame


def _analysed(planned: PlannedExperiment, records: Sequence[Record], show: bool) -> tuple[list[Curve], list[str]]:
    """The curves of the figure, with their fits and a sentence on each."""
    figure, y = planned.experiment.figure, planned.y
    reduced = bool(figure.slope_over or figure.facts_at is not None)
    own = y == planned.experiment.y(planned.protocol) or METRICS[y].ceiling is not None
    saturation = figure.ceiling if own else None  # of another metric it says nothing
    frame = _frame(planned, records)
    require_columns(frame, [figure.x, y, *([figure.slope_over] if figure.slope_over else [])], numbers=True)
    require_columns(frame, [*figure.by, *([figure.bound] if figure.bound else [])])
    if figure.slope_over:
        frame, y = slopes(frame, figure.x, y, figure.slope_over, figure.by, saturation), "slope"
    elif figure.facts_at is not None:
        frame, y = most_facts(frame, figure.x, y, figure.facts_at, figure.by), "facts"
    elif figure.peak_over:
        frame = peaks(frame, figure.x, y, figure.by)
    drawn = curves(frame, figure.x, y, figure.by)
    if not figure.laws:
        return drawn, []
    ceiling = None if reduced else saturation
    try:
        with counting(len(drawn), "curves fitted", show) as advance:
            return fitted_all(drawn, figure.laws, ceiling, advance)
    except UsageError as error:  # must not cost the figure, nor the experiments that come after
        return drawn, [f"no law was fitted: {error}"]
