"""Bounds over a grid: what theory says of an architecture on a task, without training anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.errors import UsageError
from membench.interface.bound import Bound, Setting
from membench.interface.facts import draw_facts
from membench.interface.options import label
from membench.interface.registry import Registry
from membench.plan.trial import Trial
from membench.theory.evaluate import BoundValue, evaluate_bounds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SIGNS = {"lower": ">=", "upper": "<=", "reference": "=", "order": "~", "reported": "~"}
STATEMENT = ("claim", "summary", "formula", "latex", "reference")


@dataclass(frozen=True)
class PointBounds:
    """The bounds at one point of the grid."""

    trial: Trial
    values: Sequence[BoundValue]

    @property
    def title(self) -> str:
        trial = self.trial
        return f"{trial.architecture.name} ({label(trial.config)}) on {trial.task.name} ({label(trial.task_config)})"

    @property
    def options(self) -> dict[str, Any]:
        own, facts = asdict(self.trial.config), asdict(self.trial.task_config)
        return {**own, **{f"task.{name}" if name in own else name: value for name, value in facts.items()}}


@dataclass(frozen=True, repr=False)
class Bounds:
    """Every bound that speaks of an architecture, with its value or the reason why it has none."""

    points: Sequence[PointBounds]
    known: Mapping[str, Bound]

    @classmethod
    def of(
        cls,
        registry: Registry,
        trials: Sequence[Trial],
        *,
        expensive: bool = False,
        advance: Callable[[], None] = lambda: None,
    ) -> Bounds:
        """One architecture on one task; `advance` is called after each point."""
        points = []
        for trial in trials:
            points.append(PointBounds(trial, _evaluate(registry, trial, expensive)))
            advance()
        owners = (None, trials[0].architecture.name)
        return cls(points, {bound.name: bound for bound in registry.bounds if bound.architecture in owners})

    @property
    def architecture(self) -> str:
        return self.points[0].trial.architecture.name

    @property
    def are_general(self) -> bool:
        """Whether all of them hold for every model, and none speaks of this architecture alone."""
        return all(bound.architecture is None for bound in self.known.values())

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each bound at each point of the grid."""
        import pandas as pd

        rows = [
            {"model": self.architecture, "task": point.trial.task.name, **point.options, **self._row(value)}
            for point in self.points
            for value in point.values
        ]
        return pd.DataFrame(rows)

    def _row(self, value: BoundValue) -> dict[str, Any]:
        """A bound with what it says in general."""
        told = asdict(value)
        return {"bound": told.pop("name"), **told, **self._statement(value)}

    def _statement(self, value: BoundValue) -> dict[str, Any]:
        return {key: getattr(self.known[value.name], key) for key in STATEMENT}

    def by_point(self) -> tuple[list[str], dict[str, list[BoundValue]]]:
        """What tells the points apart, in a few words each, and the values of each bound that has any."""
        options = [point.options for point in self.points]
        varying = [name for name in options[0] if len({one[name] for one in options}) > 1]
        headers = ["\n".join(f"{name}={one[name]}" for name in varying) for one in options]
        columns = [{value.name: value for value in point.values} for point in self.points]
        rows = {name: [column[name] for column in columns] for name in columns[0]}
        return headers, {name: row for name, row in rows.items() if any(map(applies, row))}

    def plot(self) -> Figure:
        """Bounds on the accuracy over a grid, as a figure that is not written."""
        return self._draw(None)

    def write_plot(self, path: Path) -> None:
        self._draw(path)

    def _draw(self, path: Path | None) -> Figure:
        from membench.analysis.theory_plot import draw_bounds

        if len(self.points) < 2:
            raise UsageError("a plot of bounds needs a grid, such as -M H=1:31")
        return draw_bounds([(point.options, point.values) for point in self.points], self.known, path)

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "model": point.trial.architecture.name,
                "config": asdict(point.trial.config),
                "task": point.trial.task.name,
                "task_config": asdict(point.trial.task_config),
                "seed": point.trial.seed,
                "bounds": [{**asdict(value), **self._statement(value)} for value in point.values],
            }
            for point in self.points
        ]

    def __repr__(self) -> str:
        from membench.analysis.tables import as_text

        return as_text(*self._shown())

    def _repr_html_(self) -> str:
        from membench.analysis.tables import as_html

        return as_html(*self._shown())

    def _shown(self) -> tuple[str, pd.DataFrame, list[str]]:
        import pandas as pd

        if len(self.points) > 1:
            headers, rows = self.by_point()
            names = [header.replace("\n", ", ") for header in headers]
            cells = {name: [short(value) for value in row] for name, row in rows.items()}
            table = pd.DataFrame.from_dict(cells, orient="index", columns=names).reset_index(names="bound")
            return f"Bounds of {self.architecture}", table, []
        (point,) = self.points
        speaking = [value for value in point.values if applies(value)]
        rows_of_one = [
            {"bound": value.name, "says": says(value), "claim": self.known[value.name].claim} for value in speaking
        ]
        silent = [value.name for value in point.values if not applies(value)]
        return point.title, pd.DataFrame(rows_of_one), [f"silent here: {', '.join(silent)}"] if silent else []


def applies(value: BoundValue) -> bool:
    return value.status == "applies" and value.value is not None


def says(value: BoundValue) -> str:
    """A bound that applies, in a few words."""
    return f"{value.quantity.replace('_', ' ')} {SIGNS[value.direction]} {value.value:.6g}"


def short(value: BoundValue) -> str:
    return f"{value.value:.3g}" if applies(value) else "-"


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
