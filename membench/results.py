"""Results: what some trials left, to look at in Python."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.measure.metrics import METRICS
from membench.records.record import Record

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from membench.analysis.figures import Plot

REFERENCES = ("proven_accuracy", "zero_head", "chance")
NAMES = ("model", "task", "protocol")
SHOWN = {  # beside the accuracy: a column here, and the column of the board that says how it is written
    "associations": "associations",
    "bits_per_parameter": "bits_per_parameter",
    "proven_accuracy": "lower_bound",
    "zero_head": "zero_head",
    "chance": "chance",
}
SHOWN_ERRORS = 3


class Results:
    """The records of some trials, with failed ones among them; shown as a table of points."""

    def __init__(self, records: Iterable[Record], *, folder: Path | None = None, ran: int | None = None) -> None:
        self.records = list(records)
        self.folder = folder  # that they are in
        self.ran = ran  # how many of them are new, and the others were found; None for records that were loaded

    def __len__(self) -> int:
        return len(self.records)

    @property
    def failed(self) -> list[Record]:
        """Trials without numbers; the `error` of each says why, and the same call tries them again."""
        return [record for record in self.records if not record.complete]

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each finished trial: options of model, task and protocol, sizes, metrics, what is proven."""
        from membench.analysis.trial_frame import trial_frame

        return trial_frame(self.records)

    def summary(self) -> pd.DataFrame:
        """One row for each point: means over its seeds, the 95 % interval of the accuracy, and bounds.

        `seeds` counts the trials behind a row, and `failed` those that are missing in it.
        """
        import pandas as pd

        from membench.analysis.intervals import intervals
        from membench.analysis.trial_frame import option_columns, trial_frame

        frame = trial_frame(self.records, failed=True)
        if frame.empty:
            return pd.DataFrame()
        missing = [name for name in ("parameters", "accuracy", *SHOWN) if name not in frame]  # when all have failed
        frame = frame.assign(**dict.fromkeys(missing, math.nan))
        numbers = [name for name in ("parameters", *METRICS, *REFERENCES) if name in frame]
        groups = frame.groupby("id", sort=False)
        rows = groups[[*NAMES, *option_columns(frame)]].first()
        rows["seeds"] = groups["complete"].sum()
        rows["failed"] = groups.size() - rows["seeds"]
        rows = rows.join(groups[numbers].mean())
        accuracies = [group.loc[group["complete"], "accuracy"].to_numpy(float) for _, group in groups]
        ends = intervals(accuracies, ceiling=1.0)
        for place, (name, values) in enumerate(zip(("low", "high"), ends, strict=True), start=1):
            rows.insert(list(rows).index("accuracy") + place, name, values)
        return rows.reset_index()

    def quantized(self) -> list[dict[str, Any]]:
        """For each point and each type that its weights were rounded to: means over its seeds of what is left.

        `kept` is the part of the bits that the accuracy is worth; where that is not known, it is None.
        """
        import numpy as np

        from membench.analysis.intervals import mean_interval
        from membench.measure.quantize import STORED, quantizations_of, quantized_name

        points: dict[str, list[Record]] = {}
        for record in self.records:
            if record.complete:
                points.setdefault(record.id, []).append(record)
        rows = []
        for some in points.values():
            for name in quantizations_of(set.intersection(*(set(record.metrics) for record in some))):
                accuracies = [_metric(record, quantized_name("accuracy", name)) for record in some]
                low, high = mean_interval(np.array(accuracies), 1.0)
                bits = _mean([_metric(record, quantized_name("bits_of_accuracy", name)) for record in some])
                full = _mean([_metric(record, "bits_of_accuracy") for record in some])
                rows.append(
                    {
                        "id": some[0].id,
                        "model": _name(some[0]),
                        "task": str(some[0].task["name"]),
                        "weights": name,
                        "accuracy": _mean(accuracies),
                        "low": low,
                        "high": high,
                        "bits_of_accuracy": None if math.isnan(bits) else bits,
                        "kept": bits / full if full > 0 else None,
                        "stored_bits": _mean([_metric(record, quantized_name(STORED, name)) for record in some]),
                    }
                )
        return rows

    def plot(
        self,
        x: str,
        y: str = "accuracy",
        *,
        by: str | Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        fit: str | Sequence[str] = (),
        ceiling: float | None = None,
        overlay: str | os.PathLike[str] | None = None,
        bound: str = "",
        log_x: bool = False,
        title: str = "",
    ) -> Figure:
        """Any column against any other, as a matplotlib figure that is not written; the words of `membench plot`."""
        return self.curves(
            x, y, by=by, where=where, fit=fit, ceiling=ceiling, overlay=overlay, bound=bound, log_x=log_x, title=title
        ).figure()

    def curves(
        self,
        x: str,
        y: str = "accuracy",
        *,
        by: str | Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        fit: str | Sequence[str] = (),
        ceiling: float | None = None,
        overlay: str | os.PathLike[str] | None = None,
        bound: str = "",
        log_x: bool = False,
        title: str = "",
        show: bool = False,
    ) -> Plot:
        """What `plot` draws: the curves with their fitted laws, and a sentence on each."""
        from membench.analysis.figures import plot_of

        return plot_of(
            self.frame,
            x,
            y,
            by=_names(by),
            where={name: _text(value) for name, value in (where or {}).items()},
            laws=_names(fit),
            ceiling=ceiling,
            overlay=Path(overlay) if overlay else None,
            bound=bound,
            log_x=log_x,
            title=title,
            show=show,
        )

    def __repr__(self) -> str:
        from membench.analysis.tables import as_text

        return as_text(*self._shown())

    def _repr_html_(self) -> str:
        from membench.analysis.tables import as_html

        return as_html(*self._shown())

    def _shown(self) -> tuple[str, pd.DataFrame, list[str]]:
        """What all points have in common as a title, and a row of texts for each point."""
        import pandas as pd

        from membench.analysis.tables import cell, with_interval
        from membench.analysis.trial_frame import option_columns, trial_frame
        from membench_leaderboard.columns import MODELS, find

        rows = self.summary()
        if rows.empty:
            return "no trials", pd.DataFrame(), []
        options = option_columns(trial_frame(self.records, failed=True))
        table = pd.DataFrame(index=rows.index)
        title = []
        for part in NAMES:
            own = [name for name, owner in options.items() if owner == part]
            title.append(_describe(part, self._labels(part, rows), rows, own, table))
        table["seeds"] = rows["seeds"]
        table["params"] = [cell(value, "{:,.0f}") for value in rows["parameters"]]
        table["accuracy"] = [with_interval(*row) for row in rows[["accuracy", "low", "high"]].to_numpy(float)]
        for name, key in SHOWN.items():
            column = find(MODELS, key)
            table[column.header] = [cell(value, f"{{:{column.compact or column.form}}}") for value in rows[name]]
        return _sentence(*title), table, self._notes()

    def _labels(self, part: str, rows: pd.DataFrame) -> list[str]:
        """The short words for the options of a model, task or protocol, at each point."""
        field = "architecture" if part == "model" else part
        found = {record.id: str(getattr(record, field).get("label") or "") for record in reversed(self.records)}
        return [found[one] for one in rows["id"]]

    def _notes(self) -> list[str]:
        """What is missing, and where the records are."""
        failed = self.failed
        notes = [f"{len(failed)} of {len(self)} trials failed:"] if failed else []
        notes += [f"  {_name(record)}, seed {record.seed}: {record.error}" for record in failed[:SHOWN_ERRORS]]
        notes += [f"  and {len(failed) - SHOWN_ERRORS} more, in .failed"] if len(failed) > SHOWN_ERRORS else []
        if self.ran is None:
            return [*notes, f"{len(self)} records" + (f" in {self.folder}" if self.folder else "")]
        new = f"{self.ran} trials run, {len(self) - self.ran} reused"
        return [*notes, new + (f" from {self.folder}" if self.folder else "")]


def _names(given: str | Sequence[str]) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given
    return [name.strip() for name in parts if name.strip()]


def _text(value: Any) -> str:
    """A value, or a list of them, as after --where."""
    from membench.analysis.trial_frame import value_text

    return ",".join(map(_text, value)) if isinstance(value, (list, tuple, range)) else value_text(value)


def _metric(record: Record, name: str) -> float:
    value = record.metrics.get(name)
    return math.nan if value is None else float(value)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _name(record: Record) -> str:
    label = record.architecture.get("label")
    return f"{record.architecture['name']}{f' ({label})' if label else ''} on {record.task['name']}"


def _describe(part: str, labels: Sequence[str], rows: pd.DataFrame, options: list[str], table: pd.DataFrame) -> str:
    """What all points have in common of a model, task or protocol; what they have not becomes columns of the table."""
    from membench.analysis.tables import cell

    if rows[part].nunique() > 1:
        table[part] = rows[part]
        if any(labels):
            table[f"{part} options"] = labels
        return ""
    varying = [name for name in options if rows[name].nunique(dropna=False) > 1]
    for name in varying:
        table[name] = [cell(value) for value in rows[name]]
    shown = {name.rpartition(".")[2] for name in varying}
    fixed = " ".join(word for word in labels[0].split() if word.partition("=")[0] not in shown)
    return f"{rows[part].iloc[0]} ({fixed})" if fixed else str(rows[part].iloc[0])


def _sentence(model: str, task: str, protocol: str) -> str:
    parts = [" on ".join(filter(None, (model, task))), f"protocol {protocol}" if protocol else ""]
    return ", ".join(filter(None, parts)) or "several models, tasks and protocols"
