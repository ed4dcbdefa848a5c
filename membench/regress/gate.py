"""Gate: a suite measured from scratch, to become a baseline or to be compared with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from membench.engine.execution import Execution
from membench.errors import PluginError, UsageError
from membench.execute.run import Run
from membench.interface.registry import Registry
from membench.measure.environment import describe_git
from membench.measure.metrics import GATED
from membench.records.record import Record
from membench.records.store import Store
from membench.regress.baseline import Baseline, default_path, read_baseline, write_baseline
from membench.regress.compare import Comparisons, Sample, compare, samples
from membench.regress.exact_tests import seeds_needed
from membench.regress.suite import Plan, Suite, load_suite, plan_suite
from membench.regress.watch import Watch
from membench.temporary import temporary_folder


@dataclass(frozen=True)
class Checked:
    """How what was measured compares with the baseline; nothing compares when there was none."""

    comparisons: Comparisons
    records: Sequence[Record]


@dataclass(frozen=True)
class Gate:
    """A suite with what to measure of it, and the baseline that it is compared with, if there is one."""

    registry: Registry
    suite: Suite
    path: Path  # of the baseline
    plan: Plan
    models: tuple[str, ...]  # that were asked for; none: all of the suite
    seeds: tuple[int, ...]
    old: Baseline | None = None

    @classmethod
    def of(
        cls,
        registry: Registry,
        suite_name: str,
        *,
        path: Path | None = None,
        models: Sequence[str] = (),
        seeds: Sequence[int] | None = None,
        compared: bool = True,
        required: bool = False,
    ) -> Gate:
        """Architectures and seeds are those of the baseline by default, if it is there and to be compared with.

        UsageError for a suite or baseline that cannot be used, before anything is measured.
        """
        suite = load_suite(suite_name)
        place = path or default_path(suite)
        old = _baseline(place, suite, required) if compared else None
        if old:
            models, seeds = models or old.models, seeds or old.seeds
        chosen = tuple(seeds or range(suite.seeds))
        return cls(registry, suite, place, plan_suite(registry, suite, models, chosen), tuple(models), chosen, old)

    def write(self, execution: Execution, out: Path | None = None, show: bool = True) -> Baseline:
        """Measure the suite and write its baseline, whether there is one already or not."""
        baseline = self.baseline(self.measure(execution, out, show))
        write_baseline(self.path, baseline)
        return baseline

    def check(self, execution: Execution, out: Path | None = None, show: bool = True) -> Checked:
        """Measure the suite and compare it with its baseline; a missing baseline is written."""
        records = self.measure(execution, out, show)
        if self.old is None:
            write_baseline(self.path, self.baseline(records))
        return Checked(self.compare(records), records)

    def measure(self, execution: Execution, out: Path | None = None, show: bool = True) -> list[Record]:
        """Run all of it, whatever records there are: a plugin's code can change without its trials' identity."""
        with temporary_folder() as folder:
            store = Store(out or folder)
            store.check()
            return Run(self.plan.trials, self.plan.trials, store, self.registry, execution).carry_out(show)

    def baseline(self, records: Sequence[Record]) -> Baseline:
        """PluginError for failed trials: a baseline without them would never miss them."""
        fail_if_any(records)
        return Baseline(
            suite=self.suite.name,
            suite_version=self.suite.version,
            models=self.models,
            seeds=self.seeds,
            samples=tuple(samples(records)),
            git=describe_git(),
        )

    def compare(self, records: Sequence[Record]) -> Comparisons:
        """Against the baseline, or nothing when there is none."""
        return compare(self.asked(self.old.samples), samples(records), self.watch) if self.old else Comparisons(())

    def asked(self, old: Sequence[Sample]) -> list[Sample]:
        """What the baseline has of the architectures that were asked for; others are not missed."""
        return [one for one in old if one.id in self.plan.watch or not self.models or one.architecture in self.models]

    def watch(self, sample: Sample) -> Watch:
        """What the suite watches; of a point that it no longer has, one metric, so that it is missed once."""
        return self.plan.watch.get(sample.id, {"accuracy": GATED["accuracy"]})

    @property
    def heading(self) -> str:
        which = f"{self.suite.name} v{self.suite.version}"
        return f"{which} against {self.path}" if self.old else f"{which}: there was no baseline"

    @property
    def notes(self) -> list[str]:
        """What a reader of the comparison has to know beside it."""
        if self.old is None:
            return [f"Wrote {self.path}: commit it, and the next run compares with it."]
        count, needed = self.plan.comparisons, seeds_needed(self.plan.comparisons)
        if len(self.seeds) >= needed:
            return []
        return [
            f"Note: {len(self.seeds)} seeds are few for {count} comparisons: a loss in all of them at once could not "
            f"be told from noise; {needed} seeds could."
        ]


def _baseline(path: Path, suite: Suite, required: bool) -> Baseline | None:
    if path.exists():
        return read_baseline(path, suite)
    if required:
        raise UsageError(
            f"there is no baseline '{path}'; write it with: membench baseline write --suite {suite.source}, "
            "with the same other options"
        )
    return None


def fail_if_any(records: Sequence[Record]) -> None:
    """PluginError with the first reason: the records may be gone when it is read."""
    failed = [record for record in records if not record.complete]
    if failed:
        first = failed[0]
        where = f"{first.architecture['name']} on {first.task['name']}, seed {first.seed}"
        raise PluginError(f"{len(failed)} of {len(records)} trials failed; the first: {where}: {first.error}")
