"""The second level of verification: train a submitted point again, on a seed that the submitter did not choose.

The seed follows from the submitted records and from a salt that the verifier makes up afterwards. The
weights that come out are verified like submitted ones, and their numbers compared with the submitted
seeds: once by accuracy and once by bits, and only in the direction that matters, which is down.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from membench.engine.execution import Execution
from membench.errors import MembenchError
from membench.execute.driver import Watcher, execute
from membench.interface.registry import Registry
from membench.plan.request import check_fit
from membench.plan.trial import Point, Trial
from membench.records.record import Record
from membench.records.store import Store
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict, verify

COMPARED = ("accuracy", "bits")
SLACK = 0.01  # of the mean, which seeds may differ by even where the submitted ones agree
LEVEL = 0.99  # of the prediction interval


@dataclass(frozen=True)
class Repeat:
    """A point that is trained again, and what became of it."""

    architecture: str
    task: str
    id: str
    seed: int
    records: tuple[Record, ...]
    trial: Trial | None = None  # None when it cannot be trained here
    outcome: str = UNCHECKED
    reason: str = ""
    found: dict[str, Any] = field(default_factory=dict)  # metrics

    @property
    def submitted(self) -> dict[str, float]:
        """Means over the submitted seeds."""
        return {name: statistics.fmean(values) for name in COMPARED if (values := _values(self.records, name))}

    def as_json(self) -> dict[str, Any]:
        names = ("architecture", "task", "id", "seed", "outcome", "reason", "found", "submitted")
        return {**{name: getattr(self, name) for name in names}, "seeds": [record.seed for record in self.records]}


def plan_repeats(verdicts: Sequence[Verdict], registry: Registry, salt: str) -> list[Repeat]:
    """One for each point of which a record is verified; what failed need not be trained to be known."""
    points: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome == VERIFIED and verdict.record is not None:
            points.setdefault(verdict.record.id, []).append(verdict)
    return [_planned(group, registry, salt) for group in points.values()]


def _planned(group: Sequence[Verdict], registry: Registry, salt: str) -> Repeat:
    entries = [verdict.entry for verdict in group if verdict.entry is not None]
    records = tuple(entry.record for entry in entries)
    first = records[0]
    seed = unforeseen_seed([entry.sha256 for entry in entries], {record.seed for record in records}, salt)
    blank = Repeat(first.architecture["name"], first.task["name"], first.id, seed, records)
    try:
        return replace(blank, trial=_trial(first, registry, seed))
    except (MembenchError, TypeError, ValueError) as error:
        return replace(blank, reason=str(error))


def unforeseen_seed(digests: Sequence[str], taken: set[int], salt: str) -> int:
    """A seed that follows from all submitted records of a point and the salt, and is not one of theirs."""
    digest = hashlib.sha256("\n".join([salt, *sorted(digests)]).encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    while seed in taken:
        seed += 1
    return seed


def _trial(record: Record, registry: Registry, seed: int) -> Trial:
    trial = Trial.of(Point.of(record), registry, seed)
    check_fit([trial])
    return trial


def repeat(
    repeats: Sequence[Repeat], registry: Registry, execution: Execution, timeout: float, watcher: Watcher
) -> list[Repeat]:
    """Train all that can be, verify what comes out from its weights, and compare."""
    trials = [one.trial for one in repeats if one.trial is not None]
    if not trials:
        return list(repeats)
    with tempfile.TemporaryDirectory(prefix="membench-") as folder:
        store = Store(Path(folder))
        execute(trials, store, registry, replace(execution, keep_weights=True), watcher)
        paths = [store.path(trial) for trial in trials]
        verdicts = {verdict.path: verdict for verdict in verify(paths, registry, execution.workers, timeout)}
        return [_judged(one, verdicts[store.path(one.trial)]) if one.trial else one for one in repeats]


def _judged(one: Repeat, verdict: Verdict) -> Repeat:
    if verdict.outcome != VERIFIED:
        error = verdict.record.error if verdict.record and verdict.record.error else verdict.reason
        return replace(one, outcome=verdict.outcome, reason=f"trained again: {error}", found=verdict.metrics)
    outcome, reason = consistent(one.records, verdict.metrics)
    return replace(one, outcome=outcome, reason=reason, found=verdict.metrics)


def consistent(records: Sequence[Record], found: dict[str, Any]) -> tuple[str, str]:
    """Whether a new seed is no worse than the submitted seeds predict.

    It may fall short of their mean by a one-sided 99 % prediction interval, t s sqrt(1 + 1/n), or by
    SLACK of the mean where that is more.
    """
    if len(records) < 2:
        return UNCHECKED, "one submitted seed does not say how much seeds differ; submit more"
    for name in COMPARED:
        values = _values(records, name)
        if len(values) != len(records) or found.get(name) is None:
            return UNCHECKED, f"not every record has {name}"
        mean, least = statistics.fmean(values), least_expected(values)
        if found[name] < least:
            return (
                FAILED,
                f"{name} is {found[name]:.6g}, below {least:.6g}, the least that a mean of {mean:.6g} predicts",
            )
    return VERIFIED, ""


def least_expected(values: Sequence[float]) -> float:
    from scipy.stats import t

    count, mean = len(values), statistics.fmean(values)
    spread = float(t.ppf(LEVEL, count - 1)) * statistics.stdev(values) * math.sqrt(1 + 1 / count)
    return mean - max(spread, SLACK * abs(mean))


def _values(records: Sequence[Record], name: str) -> list[float]:
    return [float(value) for record in records if (value := record.metrics.get(name)) is not None]
