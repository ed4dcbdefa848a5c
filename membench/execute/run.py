"""Run: trials, those of them that have no record yet, and how to run these."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from membench.engine.execution import Execution
from membench.errors import PluginError, UsageError
from membench.execute.driver import execute
from membench.execute.progress import watching
from membench.execute.tracking import tracking
from membench.interface.declarations import Architecture
from membench.interface.registry import Registry
from membench.measure.quantize import BITS, quantizations_of
from membench.plan.memory import check_memory
from membench.plan.trial import Trial
from membench.records import weights
from membench.records.record import Record
from membench.records.sharing import Sharing
from membench.records.store import Store


@dataclass(frozen=True)
class Run:
    """What was asked for, and what of it is left to do."""

    trials: Sequence[Trial]
    pending: Sequence[Trial]
    store: Store
    registry: Registry
    execution: Execution
    found: dict[tuple[str, int], Record] = field(default_factory=dict)  # records of the trials that are done

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        store: Store,
        registry: Registry,
        execution: Execution,
        *,
        overwrite: bool = False,
    ) -> Run:
        """Finished trials are found again, unless they are to be overwritten or lack what is asked for now."""
        if execution.floor:
            require_bottleneck(trial.architecture for trial in trials)
        if execution.memory:
            for trial in {trial.point: trial for trial in trials}.values():
                check_memory(trial.task, trial.task_config, execution.memory)
        for name in execution.track:
            registry.tracker(name).require()
        found = {} if overwrite else _done(store, trials, execution)
        pending = [trial for trial in trials if (trial.id, trial.seed) not in found]
        return cls(trials, pending, store, registry, no_less_than_before(execution, pending, store), found)

    def carry_out(self, show: bool = True, what: str = "trials") -> list[Record]:
        """The records of all trials, in their order; what is pending runs behind a progress bar.

        A record is written as soon as its trial ends, so that nothing that is finished is lost.
        """
        if show:
            for reason, trials in self.stale().items():
                words = f"measuring {len(trials)} of {len(self.trials)} trials again"
                print(f"membench: {words}: {reason}", file=sys.stderr)
        trackers = [self.registry.tracker(name) for name in self.execution.track]
        with (
            watching(len(self.pending), show, what) as watcher,
            tracking(trackers, self.pending, self.store.root, watcher) as watcher,
        ):
            execute(self.pending, self.store, self.registry, self.execution, watcher)
        return [self.found.get((trial.id, trial.seed)) or self._new(trial) for trial in self.trials]

    def _new(self, trial: Trial) -> Record:
        """As it was written, so that it is the same as for whoever finds it again."""
        record = self.store.latest(trial)
        if record is None:
            raise OSError(None, "the record of a trial that ended is no longer there", str(self.store.path(trial)))
        return record

    def stale(self) -> dict[str, list[Trial]]:
        """Finished trials that have to be measured again, because their code is another now, by what changed."""
        reasons: dict[str, list[Trial]] = {}
        for trial in self.pending:
            if reason := self.store.why_stale(trial):
                reasons.setdefault(reason, []).append(trial)
        return reasons


def require_bottleneck(architectures: Iterable[Architecture[Any]]) -> None:
    """UsageError for an architecture of which no floor can be found."""
    for architecture in architectures:
        if architecture.bottleneck is None:
            raise UsageError(f"--floor: {architecture.name} declares no bottleneck, so it has no floor")


def _done(store: Store, trials: Iterable[Trial], execution: Execution) -> dict[tuple[str, int], Record]:
    """The records that have all that is asked for."""
    sharing, found = Sharing(), {}
    for trial in trials:
        record = store.find(trial)
        if record is not None and _has_all(record, store, trial, execution):
            found[trial.id, trial.seed] = sharing.of(record)
    return found


def _has_all(record: Record, store: Store, trial: Trial, execution: Execution) -> bool:
    if execution.floor and "excess_kl" not in record.metrics:
        return False
    if not set(execution.quantize) <= set(quantizations_of(record.metrics)):
        return False
    return not execution.keep_weights or weights.are_there(record.weights, store.path(trial))


def no_less_than_before(execution: Execution, pending: Sequence[Trial], store: Store) -> Execution:
    """What the records have that are about to be replaced, the new ones get too."""
    replaced = [record for record in map(store.latest, pending) if record]
    rounded = {name for record in replaced for name in quantizations_of(record.metrics)}
    had_floor = any("excess_kl" in record.metrics for record in replaced)
    return replace(
        execution,
        keep_weights=execution.keep_weights or any(record.weights for record in replaced),
        quantize=tuple(name for name in BITS if name in rounded or name in execution.quantize),
        floor=execution.floor or (had_floor and all(trial.architecture.bottleneck for trial in pending)),
    )


def fail_if_any(records: Sequence[Record]) -> None:
    """PluginError when trials failed."""
    failed = [record for record in records if not record.complete]
    if failed:
        raise PluginError(
            f"{len(failed)} of {len(records)} trials failed; their records say why; rerun the command to retry them"
        )
