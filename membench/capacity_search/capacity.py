"""Capacity: how many facts a model memorises, from trials with more and more of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from membench.analysis.intervals import mean_interval
from membench.capacity_search.measurement import Measurement, Summary, summarise
from membench.capacity_search.subject import Subject
from membench.capacity_search.threshold import Peak, Threshold, peak, threshold
from membench.engine.execution import Execution
from membench.execute.run import Run, fail_if_any
from membench.interface.registry import Registry
from membench.plan.request import check_fit
from membench.records.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Capacity:
    """The thresholds, one for each level of accuracy, the peak of bits per parameter, and what they were found from."""

    subject: Subject
    levels: tuple[float, ...]
    measurements: Sequence[Measurement]
    thresholds: Sequence[Threshold]
    peak: Peak | None
    store: Store
    ran: int  # trials that were run for it; the others were found as records

    @classmethod
    def find(
        cls,
        subject: Subject,
        levels: tuple[float, ...],
        *,
        resolution: float,
        largest: int | None,
        store: Store,
        registry: Registry,
        execution: Execution,
        show: bool = True,
    ) -> Capacity:
        """Round after round until the search has ended. PluginError when trials fail."""
        search = subject.search(levels, resolution, largest)
        done: list[Measurement] = []
        ran = 0
        while values := search.next_values(done):
            trials = [trial for value in values for trial in subject.at(value)]
            check_fit(trials)
            run = Run.of(trials, store, registry, execution)
            records = run.carry_out(show, f"trials with {subject.vary} = {', '.join(map(str, values))}")
            fail_if_any(records)
            ran += len(run.pending)
            done += [subject.measurement(record, trial) for record, trial in zip(records, trials, strict=True)]
        thresholds = [threshold(done, levels, level) for level in levels]
        return cls(subject, levels, done, thresholds, peak(done), store, ran)

    @property
    def threshold(self) -> Threshold:
        """Of the highest level: all facts right, by default."""
        return self.thresholds[0]

    @property
    def rows(self) -> list[Summary]:
        """All seeds at each number of facts."""
        return summarise(self.measurements, self.levels)

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each trial."""
        import pandas as pd

        return pd.DataFrame([asdict(one) for one in self.measurements])

    def summary(self) -> pd.DataFrame:
        """One row for each number of facts: means and intervals over seeds."""
        import pandas as pd

        return pd.DataFrame(self.as_json()["values"])

    def plot(self) -> Figure:
        """Accuracy and bits over the load, as a figure that is not written."""
        return self._draw(None)

    def write_plot(self, path: Path) -> None:
        self._draw(path)

    def _draw(self, path: Path | None) -> Figure:
        from membench.capacity_search.plot import draw_capacity

        return draw_capacity(
            self.measurements, self.thresholds, self.peak, self.subject.title, path, metric=self.subject.metric
        )

    def as_json(self) -> dict[str, Any]:
        trial = self.subject.base
        varied = ("T0", self.subject.vary)
        return {
            "model": trial.architecture.name,
            "config": asdict(trial.config),
            "task": trial.task.name,
            "task_config": {name: value for name, value in asdict(trial.task_config).items() if name not in varied},
            "protocol": trial.protocol.name,
            "protocol_config": asdict(trial.protocol_config),
            "vary": self.subject.vary,
            "metric": self.subject.metric,
            "seeds": [one.seed for one in self.subject.trials],
            "thresholds": [_plain(asdict(one)) for one in self.thresholds],
            "peak": _plain(asdict(self.peak)) if self.peak else None,
            "values": [self._row(one) for one in self.rows],
            "records": str(self.store.root),
            "ran": self.ran,
            "found": len(self.measurements) - self.ran,
        }

    def _row(self, row: Summary) -> dict[str, Any]:
        own = [one for one in self.measurements if one.value == row.value]
        low, high = mean_interval(np.array([one.accuracy for one in own]), ceiling=1.0)
        bits_low, bits_high = mean_interval(np.array([one.bits for one in own]))
        ends = {"low": low, "high": high, "bits_low": bits_low, "bits_high": bits_high}
        return _plain({**asdict(row), **ends, "accuracies": [one.accuracy for one in own]})

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headers, and a row of texts for each number of facts."""
        own = [] if self.subject.vary == "T0" else [self.subject.vary]
        headers = [
            *own,
            "facts",
            "load",
            "accuracy",
            *self._recall,
            *(self._words(level) for level in self.levels),
            "bits/parameter",
        ]
        rows = []
        for row in self.rows:
            seeds = [f"{round(part * row.seeds)} of {row.seeds}" for part in row.reached]
            numbers = [
                str(row.facts),
                f"{row.load:.3g}",
                f"{row.accuracy:.4f}",
                *(f"{row.score:.4f}" for _ in self._recall),
                *seeds,
                f"{row.bits:.3f}",
            ]
            rows.append([*([str(row.value)] if own else []), *numbers])
        return headers, rows

    def sentences(self) -> list[str]:
        """One on each threshold, and one on the peak."""
        words = [threshold_words(one, self._words(one.level)) for one in self.thresholds]
        return [*words, *([_peak_words(self.peak)] if self.peak else [])]

    @property
    def _recall(self) -> list[str]:
        """The metric, if it is not the accuracy, which every table has."""
        return [] if self.subject.metric == "accuracy" else [self.subject.metric]

    def _words(self, level: float) -> str:
        return f"{self.subject.metric} of {level:g}" if self._recall else level_words(level)

    def __repr__(self) -> str:
        from membench.analysis.tables import as_text

        return as_text(*self._shown())

    def _repr_html_(self) -> str:
        from membench.analysis.tables import as_html

        return as_html(*self._shown())

    def _shown(self) -> tuple[str, pd.DataFrame, list[str]]:
        import pandas as pd

        headers, rows = self.table()
        return self.subject.title, pd.DataFrame(rows, columns=headers), self.sentences()


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NaN as null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def level_words(level: float) -> str:
    return "all right" if level == 1 else f"{100 * level:g} % right"


def threshold_words(one: Threshold, words: str = "") -> str:
    """One sentence."""
    words = words or level_words(one.level)
    if one.status == "at least":
        return f"{words}: at least {one.facts:.0f} facts (load {one.load:.3g}); the search ended there"
    if one.status == "below":
        return f"{words}: not even {one.facts:.0f} fact{'' if one.facts == 1 else 's'}"
    interval = f"(95 % {one.low:.4g} to {one.high:.4g})"
    return f"{words}: {one.facts:.4g} facts {interval}, load {one.load:.3g} ({one.load_low:.3g} to {one.load_high:.3g})"


def _peak_words(one: Peak) -> str:
    interval = f" (95 % {one.low:.3f} to {one.high:.3f})" if math.isfinite(one.low) else ""
    return f"peak: {one.bits:.3f} bits per parameter{interval} with {one.facts} facts (load {one.load:.3g})"
