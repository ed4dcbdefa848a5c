"""The floor of the divergence over d: the best that logits of rank d reach on a task, as an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.errors import UsageError
from membench.interface.declarations import Task
from membench.interface.facts import draw_facts
from membench.interface.options import assignments, expand, label, option
from membench.interface.registry import Registry

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from membench.theory.floor import FloorInterval


@dataclass(frozen=True, kw_only=True)
class Rank:
    d: int = option(2, help="dimension of the bottleneck", minimum=1)


@dataclass(frozen=True, repr=False)
class Floor:
    """What was asked for, and the intervals that were found so far."""

    task: Task[Any]
    config: Any
    dimensions: Sequence[int]
    seed: int
    starts: int
    intervals: list[FloorInterval] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        registry: Registry,
        name: str,
        task_options: Sequence[str],
        rank_options: Sequence[str],
        *,
        seed: int = 0,
        starts: int = 8,
    ) -> Floor:
        """UsageError for a grid of tasks, and for options that there are not."""
        task = registry.task(name)
        configs = expand(task.config, assignments(task_options), name, f"see its options with: membench tasks {name}")
        if len(configs) > 1:
            raise UsageError(f"{name}: a floor needs one task config, not {len(configs)}; give single values with -T")
        if seed < 0 or starts < 1:
            raise UsageError(f"--seed {seed} --starts {starts}: give a seed of at least 0 and at least 1 descent")
        ranks = expand(Rank, assignments(rank_options), "floor", "the only option is d")
        return cls(task, configs[0], sorted({rank.d for rank in ranks}), seed, starts)

    def descend(self) -> Iterator[FloorInterval]:
        """Find one interval after the other."""
        from membench.theory.floor import floors  # it needs scipy

        facts = draw_facts(self.task, self.config, self.seed)
        for interval in floors(facts, self.dimensions, self.starts):
            self.intervals.append(interval)
            yield interval

    @property
    def title(self) -> str:
        return f"{self.task.name} ({label(self.config)})"

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each d."""
        import pandas as pd

        return pd.DataFrame(self.as_json())

    def plot(self) -> Figure:
        return self._draw(None)

    def write_plot(self, path: Path) -> None:
        self._draw(path)

    def _draw(self, path: Path | None) -> Figure:
        from membench.analysis.theory_plot import draw_floor

        return draw_floor(self.intervals, self.title, path)

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(interval) for interval in self.intervals]

    def __repr__(self) -> str:
        from membench.analysis.tables import as_text

        return as_text(f"{self.title}, seed {self.seed}: KL in nats", self.frame)

    def _repr_html_(self) -> str:
        from membench.analysis.tables import as_html

        return as_html(f"{self.title}, seed {self.seed}: KL in nats", self.frame)
