"""Two sets of measurements of the same points: was capacity lost, or is it noise?

A comparison is one metric of one point. It fails only if the loss is larger than the smallest one
that counts, and an exact test says that chance alone would rarely make it. Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from membench.analysis.intervals import Numbers, bootstrap_interval, difference_interval
from membench.errors import MembenchError
from membench.measure.metrics import GATED, METRICS
from membench.records.record import Record
from membench.regress.exact_tests import LEVEL, Evidence, holm, rank_test, seeds_needed, sign_flip_test, smallest_rank_p
from membench.regress.watch import Watch

SAME_NUMBERS = ("python", "torch", "numpy", "platform", "cpu", "threads", "device", "dtype")
SEVERAL = "several"  # stands for a value that differs among the seeds of a point


class CapacityLost(MembenchError):
    """A comparison failed: what its reader has to know, in a sentence."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the seeds of one point gave: names for people, an id for machines, and a column for each metric."""

    id: str
    architecture: str
    config: str
    task: str
    protocol: str
    seeds: tuple[int, ...]
    metrics: Mapping[str, tuple[float | None, ...]]
    facts: tuple[str | None, ...] = ()  # what identifies the facts of each seed
    environment: Mapping[str, Any] = field(default_factory=dict)

    def values(self, metric: str) -> dict[int, float]:
        column = self.metrics.get(metric, (None,) * len(self.seeds))
        return {seed: value for seed, value in zip(self.seeds, column, strict=True) if value is not None}


def samples(records: Iterable[Record]) -> list[Sample]:
    """Complete records by point; of the same trial recorded twice, the first counts."""
    points: dict[str, dict[int, Record]] = {}
    for record in records:
        if record.complete:
            points.setdefault(record.id, {}).setdefault(record.seed, record)
    return [_sample([group[seed] for seed in sorted(group)]) for group in points.values()]


def _sample(group: Sequence[Record]) -> Sample:
    first = group[0]
    return Sample(
        id=first.id,
        architecture=str(first.architecture["name"]),
        config=_words(first.architecture),
        task=f"{first.task['name']} {_words(first.task)}".strip(),
        protocol=f"{first.protocol['name']} {_words(first.protocol)}".strip(),
        seeds=tuple(record.seed for record in group),
        metrics={name: tuple(_number(record.metrics.get(name)) for record in group) for name in GATED
                 if any(name in record.metrics for record in group)},
        facts=tuple(_short(record.task.get("data_sha256")) for record in group),
        environment=_common([record.environment for record in group]),
    )  # fmt: skip


def _words(part: Mapping[str, Any]) -> str:
    label = part.get("label")
    if isinstance(label, str):
        return label
    config = part["config"]
    return " ".join(f"{name}={value}" for name, value in config.items()) if isinstance(config, dict) else str(config)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _short(digest: Any) -> str | None:
    return digest[:12] if isinstance(digest, str) else None


def _common(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for one in environments for name in one if name in SAME_NUMBERS)
    found = {name: {str(one.get(name)) for one in environments} for name in names}
    return {name: environments[0].get(name) if len(found[name]) == 1 else SEVERAL for name in names}


# Verdicts, in the order in which a reader wants them.
LOST, TOO_FEW, NOT_COMPARABLE, IMPROVED, NOISE, IDENTICAL = (
    "lost", "too few seeds", "not comparable", "improved", "within noise", "identical"
)  # fmt: skip
VERDICTS = (LOST, TOO_FEW, NOT_COMPARABLE, IMPROVED, NOISE, IDENTICAL)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One metric of one point, then and now, and what to make of it."""

    id: str
    architecture: str
    config: str
    task: str
    protocol: str
    metric: str
    counts: float = math.nan  # the smallest loss that counts
    old: float | None = None
    new: float | None = None
    gain: float | None = None  # change for the better; a loss is below zero
    low: float | None = None  # 95 % interval of the gain
    high: float | None = None
    p: float | None = None  # of the loss or gain that was seen, corrected for the number of comparisons
    test: str = ""
    verdict: str = ""
    why: str = ""

    @property
    def title(self) -> str:
        return f"{self.architecture} on {self.task.partition(' ')[0]}"


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of two sets, and how many of them could have failed."""

    rows: tuple[Comparison, ...]
    family: int = 0

    def of(self, *verdicts: str) -> list[Comparison]:
        return [row for row in self.rows if row.verdict in verdicts]

    def counts(self) -> dict[str, int]:
        return {verdict: len(self.of(verdict)) for verdict in VERDICTS if self.of(verdict)}


def compare(old: Iterable[Sample], new: Iterable[Sample], watch: Callable[[Sample], Watch]) -> Comparisons:
    """Compare two sets, point by point, in the metrics that `watch` names for each; losses come first."""
    before, after = {one.id: one for one in old}, {one.id: one for one in new}
    cases = [
        _case(before.get(key), after.get(key), name, counts)
        for key, sample in {**before, **after}.items()
        for name, counts in watch(sample).items()
    ]
    losses, gains = (holm([getattr(case, way) for case in cases]) for way in ("loss", "gain"))
    rows = [case.settle(loss, gain) for case, loss, gain in zip(cases, losses, gains, strict=True)]
    rows.sort(key=lambda row: VERDICTS.index(row.verdict))
    return Comparisons(tuple(rows), sum(case.loss.possible for case in cases))


@dataclass(frozen=True)
class _Case:
    """A comparison that waits for the others, because p is corrected for all of them."""

    row: Comparison
    loss: Evidence = field(default_factory=Evidence)
    gain: Evidence = field(default_factory=Evidence)

    def settle(self, loss: float, gain: float) -> Comparison:
        row = self.row
        if row.verdict or row.gain is None:
            return row
        drop = -row.gain
        p = loss if drop > 0 else gain
        row = replace(row, p=p)
        if drop > row.counts and loss < LEVEL:
            return replace(row, verdict=LOST, why=_because(row, f"{drop:.4g} worse"))
        if -drop > row.counts and gain < LEVEL:
            return replace(row, verdict=IMPROVED, why=_because(row, f"{-drop:.4g} better"))
        if drop > row.counts and self._hopeless(loss):
            words = f"{drop:.4g} worse, but no order of so few seeds gives p < {LEVEL:g} among these comparisons"
            return replace(row, verdict=TOO_FEW, why=_because(row, words))
        return replace(row, verdict=NOISE, why=_because(row, _why_noise(drop, row.counts)))

    def _hopeless(self, corrected: float) -> bool:
        """Whether even the clearest order of these numbers would not have been enough."""
        return self.loss.p <= self.loss.best and corrected >= LEVEL


def _because(row: Comparison, words: str) -> str:
    return f"{row.why}; {words}" if row.why else words


def _why_noise(drop: float, counts: float) -> str:
    if drop > counts:
        return f"{drop:.4g} worse, but seeds disagree"
    if drop < -counts:
        return f"{-drop:.4g} better, but seeds disagree"
    return f"a change below {counts:g} does not count"


def _case(old: Sample | None, new: Sample | None, metric: str, counts: float) -> _Case:
    """What can be said of one metric on its own."""
    one = new or old
    assert one is not None
    row = Comparison(id=one.id, architecture=one.architecture, config=one.config, task=one.task,
                     protocol=one.protocol, metric=metric, counts=counts)  # fmt: skip
    if old is None or new is None:
        missing = "measured before" if old is None else "measured now"
        return _Case(replace(row, verdict=NOT_COMPARABLE, why=f"it was not {missing} with these options and versions"))
    before, after = old.values(metric), new.values(metric)
    if not before or not after:
        which = "before" if not before else "now"
        return _Case(replace(row, verdict=NOT_COMPARABLE, why=f"{which} there is no number for {metric}"))
    row = replace(row, old=_mean(before), new=_mean(after))
    gone = [seed for seed in new.seeds if seed in before and seed not in after]
    obstacle = f"{metric} of seed {gone[0]} is no longer a number" if gone else _obstacle(old, new)
    if obstacle:
        return _Case(replace(row, verdict=NOT_COMPARABLE, why=obstacle))
    return _tested(row, before, after, _same_numbers_expected(old, new))


def _mean(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))


def _obstacle(old: Sample, new: Sample) -> str:
    """Why two samples say nothing about the code, in a sentence; empty when they do."""
    for name, part in (("torch", "+"), ("device", ":")):
        then, now = (str(one.environment.get(name)) for one in (old, new))
        if then.partition(part)[0] != now.partition(part)[0] or SEVERAL in (then, now):
            return f"{name} was {then} and is {now}"
    facts = dict(zip(old.seeds, old.facts, strict=False))
    for seed, digest in zip(new.seeds, new.facts, strict=False):
        if digest and facts.get(seed) and digest != facts[seed]:
            return f"the facts of seed {seed} are others, though the task has the same version"
    return ""


def _same_numbers_expected(old: Sample, new: Sample) -> bool:
    """Whether unchanged code has to give the same digits: the same versions on the same kind of CPU."""
    pairs = [(old.environment.get(name), new.environment.get(name)) for name in SAME_NUMBERS]
    known = all(then is not None and then == now and then != SEVERAL for then, now in pairs)
    return known and str(new.environment.get("device")) == "cpu"


def _tested(row: Comparison, before: Mapping[int, float], after: Mapping[int, float], same: bool) -> _Case:
    sign = METRICS[row.metric].sign
    common = sorted(before.keys() & after.keys())
    if common:
        old, new = (np.array([values[seed] for seed in common]) for values in (before, after))
        alone = len(before.keys() ^ after.keys())
        words = f"{_seeds(alone)} without a partner left out" if alone else ""
        row = replace(row, old=float(old.mean()), new=float(new.mean()), why=words)
        return _paired(row, sign, common, old, new, same)
    old, new = (sign * np.array(list(values.values())) for values in (before, after))
    gain = float(new.mean() - old.mean())
    low, high = _ends(difference_interval(new, old))
    row = replace(row, gain=gain, low=low, high=high, test=f"Mann-Whitney, {len(old)} and {len(new)} seeds")
    return _Case(_enough(row, smallest_rank_p(len(old), len(new))), rank_test(new, old, row.counts),
                 rank_test(-new, -old, row.counts))  # fmt: skip


def _paired(row: Comparison, sign: int, seeds: Sequence[int], old: Numbers, new: Numbers, same: bool) -> _Case:
    gains = sign * (new - old)
    low, high = _ends(bootstrap_interval(gains))
    row = replace(row, gain=float(gains.mean()), low=low, high=high, test=f"sign-flip, {len(seeds)} pairs")
    changed = [seed for seed, gain in zip(seeds, gains, strict=True) if gain != 0]
    if not changed:
        return _Case(replace(row, verdict=IDENTICAL, why=_because(row, f"the same number for {_seeds(len(seeds))}")))
    if same:
        words = f"numbers changed: {len(changed)} of {_seeds(len(seeds))}, seed {changed[0]} first"
        row = replace(row, why=_because(row, words))
    row = _enough(row, 2.0 ** -len(seeds))
    return _Case(row, sign_flip_test(gains, row.counts), sign_flip_test(-gains, row.counts))


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def _enough(row: Comparison, best: float) -> Comparison:
    """The row as it is, or with the verdict that so few seeds can never decide anything."""
    if best < LEVEL or row.gain is None or row.gain >= 0:
        return row
    words = f"p < {LEVEL:g} takes {seeds_needed(1)} paired seeds, or 5 on each side"
    return replace(row, verdict=TOO_FEW, why=_because(row, words))


def _ends(interval: tuple[float, float]) -> tuple[float | None, float | None]:
    """Nothing for a single seed: JSON has no NaN."""
    low, high = interval
    return (None, None) if math.isnan(low) else (low, high)
