"""Claims: what the curves of an experiment say, and whether what was claimed of them holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from membench.analysis.curves import CEILINGS, Curve, Overlay, name_of
from membench.analysis.intervals import Numbers, difference_interval, mean_interval
from membench.analysis.laws import CLOSE, LAWS, best, compare, fit, fit_all
from membench.analysis.trial_frame import require_columns
from membench.errors import UsageError, unknown

if TYPE_CHECKING:
    from membench.plan.experiment import Claim

NEARLY = 0.02  # of the range of y: laws that are nearer than this are one law to a reader


def slopes(
    frame: pd.DataFrame, x: str, y: str, over: str, by: Sequence[str], ceiling: float | None = None
) -> pd.DataFrame:
    """For each group, x and seed, the slope of y over a column; points at the ceiling count as censored.

    A seed with fewer than two points below the ceiling has no slope.
    """
    rows, reason = [], ""
    for key, group in frame.groupby([*by, x, "seed"], sort=True):
        values = dict(zip([*by, x, "seed"], key, strict=True))
        try:
            found = fit("linear", group[over], group[y], ceiling_of(y, ceiling), intervals=False)
        except UsageError as error:
            reason = str(error)
            continue
        rows.append({**values, "slope": found.parameters["slope"]})
    if not rows:
        raise UsageError(f"no slope of {y} over {over} can be taken: {reason}")
    return pd.DataFrame(rows)


def most_facts(frame: pd.DataFrame, x: str, y: str, level: float, by: Sequence[str]) -> pd.DataFrame:
    """For each group, x and seed, the largest number of facts of which y reaches the level, if it does."""
    reached = frame[frame[y] >= level - 1e-12]
    if reached.empty:
        raise UsageError(f"no trial reaches {y} {level:g}")
    return _largest(reached, x, "T0", by).rename(columns={"T0": "facts"})


def peaks(frame: pd.DataFrame, x: str, y: str, by: Sequence[str]) -> pd.DataFrame:
    """For each group, x and seed, the largest y."""
    return _largest(frame, x, y, by)


def _largest(frame: pd.DataFrame, x: str, y: str, by: Sequence[str]) -> pd.DataFrame:
    found: pd.DataFrame = frame.groupby([*by, x, "seed"], sort=True)[y].max().reset_index()
    return found


def ceiling_of(y: str, wanted: float | None) -> float | None:
    """Where y saturates: what was asked for, or the largest value that it can have, if there is one."""
    return CEILINGS.get(y) if wanted is None else wanted


def fitted(curve: Curve, laws: Sequence[str], ceiling: float | None = None) -> tuple[Curve, str]:
    """The curve with its fits, the best first, and one sentence that compares them.

    A point at the ceiling or above says that the law is at least there, and no more.
    """
    top = ceiling_of(curve.y, ceiling)
    fits, left_out = fit_all(curve.trials[curve.x], curve.trials[curve.y], top, laws=laws)
    if not fits:
        raise UsageError("; ".join(left_out.values()))
    winner = best(fits)
    ordered = [winner, *(one for one in fits if one is not winner)]
    return replace(curve, fits=ordered), compare(fits, left_out)


def fitted_all(
    curves: Sequence[Curve],
    laws: Sequence[str],
    ceiling: float | None = None,
    advance: Callable[[], None] = lambda: None,
) -> tuple[list[Curve], list[str]]:
    """Every curve with its fits, and a sentence on each. UsageError only when no curve can be fitted."""
    found, sentences, reasons = [], [], []
    for curve in curves:
        start = f"{curve.name}: " if curve.name else ""
        try:
            one, sentence = fitted(curve, laws, ceiling)
            sentence = f"{start}{one.fits[0].words(curve.x)}; {sentence}"
        except UsageError as error:
            one, sentence = curve, f"{start}no law was fitted: {error}"
            reasons.append(error)
        found.append(one)
        sentences.append(sentence)
        advance()
    if len(reasons) == len(curves):
        raise reasons[0]
    return found, sentences


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, None when the data cannot tell, and why."""

    holds: bool | None
    reason: str

    def __str__(self) -> str:
        word = {True: "holds", False: "does not hold", None: "undecided"}[self.holds]
        return f"{word}: {self.reason}"


def check_claim(claim: Claim, laws: Sequence[str]) -> None:
    """UsageError for a claim that cannot be judged; to be asked before anything is trained for it."""
    for law in (*laws, *([claim.law] if claim.law else [])):
        if law not in LAWS:
            raise unknown("law", law, LAWS, f"known: {', '.join(LAWS)}")
    needed = claim.law or ("power" if claim.exponent is not None else "")
    if needed and needed not in laws:
        raise UsageError(f"the claim is judged by the law '{needed}', which is not among the laws of the figure")
    if claim.equal and len(claim.equal) != 2:
        raise UsageError(f"the claim compares {len(claim.equal)} series; 'equal' names two")


def judge(claim: Claim, curves: Sequence[Curve], overlay: Overlay | None = None, by: Sequence[str] = ()) -> Verdict:
    """The claim against all curves together."""
    if claim.published is not None:
        return _judge_published(claim, curves, overlay, by)
    if claim.law:
        return _judge_law(claim.law, curves)
    if claim.exponent is not None:
        return _judge_exponent(claim.exponent, curves)
    if claim.equal:
        return _judge_equal(claim.equal, curves)
    if claim.above:
        return _judge_above(claim.above, curves)
    return Verdict(None, "the experiment does not say what to judge it by")


def _judge_law(law: str, curves: Sequence[Curve]) -> Verdict:
    """Against each other law by the sum of AIC over the curves that both were fitted to: many curves are much data."""
    by_law = [{one.law: one for one in curve.fits} for curve in curves]
    if not all(law in fits for fits in by_law):
        return Verdict(None, f"{LAWS[law].words} could not be fitted to every curve")
    behind: dict[str, float] = {}
    for fits in by_law:
        for other in fits.keys() - {law}:
            behind[other] = behind.get(other, 0.0) + fits[law].aicc - fits[other].aicc
    winner = max(sorted(behind), key=lambda name: behind[name], default=law)
    if behind.get(winner, 0.0) < CLOSE:
        return Verdict(True, f"no other law describes the data better than {LAWS[law].words} does")
    apart = _apart(law, winner, curves)
    better = f"{LAWS[winner].words} describes the data better ({behind[winner]:.0f} AIC over all curves)"
    if apart < NEARLY * (CEILINGS.get(curves[0].y) or float(curves[0].points["mean"].max())):
        return Verdict(True, f"to within {apart:.3g} in {curves[0].y}; {better}, so that the bend is real but small")
    return Verdict(False, f"{better}; the two differ by up to {apart:.3g} in {curves[0].y}")


def _apart(law: str, winner: str, curves: Sequence[Curve]) -> float:
    """How far two laws are apart in y at most: a difference that is certain may still be small."""
    apart = [0.0]
    for curve in curves:
        fits = {one.law: one for one in curve.fits}
        if winner in fits:
            x = np.unique(curve.trials[curve.x].to_numpy(dtype=float))
            apart.append(float(np.abs(fits[law].predict(x) - fits[winner].predict(x)).max()))
    return max(apart)


def _judge_exponent(exponent: float, curves: Sequence[Curve]) -> Verdict:
    words, inside = [], []
    for curve in curves:
        power = next((one for one in curve.fits if one.law == "power"), None)
        if power is None:
            return Verdict(None, "a power law could not be fitted to every curve")
        low, high = power.intervals["exponent"]
        inside.append(low <= exponent <= high)
        name = f"{curve.name}: " if curve.name else ""
        words.append(f"{name}exponent {power.parameters['exponent']:.2f} (95 % {low:.2f} to {high:.2f})")
    return Verdict(all(inside), f"in a power law with an offset: {'; '.join(words)}; claimed was {exponent:g}")


@dataclass(frozen=True)
class Beside:
    """A published point, and what was measured there."""

    place: str  # curve and x
    published: float
    values: Numbers  # of all seeds
    best: bool  # whether the best of them counts, and not their mean
    tolerance: float  # as a part of what was published

    @property
    def ours(self) -> float:
        return float(self.values.max() if self.best else self.values.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean."""
        return mean_interval(self.values)

    @property
    def is_near(self) -> bool:
        low, high = self.interval
        inside = not self.best and low <= self.published <= high
        return inside or abs(self.ours - self.published) <= self.tolerance * self.published

    def __str__(self) -> str:
        low, high = (number(end) for end in self.interval)
        told = f"mean {number(self.values.mean())}, " if self.best else ""
        which = f"best of {len(self.values)} seeds, " if self.best else ""
        return f"{self.place}: {number(self.ours)} ({which}{told}95 % {low} to {high}) against {number(self.published)}"


def number(value: float) -> str:
    """Three digits, and all of a large one."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def beside(claim: Claim, curves: Sequence[Curve], overlay: Overlay | None, by: Sequence[str]) -> list[Beside]:
    """Each published point with the trials at the same x, of the curve of the same name or of the one named."""
    named = {curve.name: curve for curve in curves}
    found = []
    for point in overlay.points.to_dict("records") if overlay else []:
        name = name_of(by, tuple(point[column] for column in by))
        curve = named.get(claim.curve or name)
        values = _at(curve, point[curve.x]) if curve else np.empty(0)
        if curve and len(values):
            place = f"{name + ', ' if name else ''}{curve.x}={point[curve.x]:g}"
            found.append(Beside(place, float(point[curve.y]), values, claim.best, claim.published or 0.0))
    return found


def _judge_published(claim: Claim, curves: Sequence[Curve], overlay: Overlay | None, by: Sequence[str]) -> Verdict:
    found = beside(claim, curves, overlay, by)
    if not found:
        return Verdict(None, "no published point was measured")
    words = "; ".join(map(str, found))
    return Verdict(all(one.is_near for one in found), f"{words} (near is within {100 * (claim.published or 0):g} %)")


def _at(curve: Curve, x: float) -> Numbers:
    return curve.trials.loc[curve.trials[curve.x] == x, curve.y].to_numpy(dtype=float)


def _judge_above(column: str, curves: Sequence[Curve]) -> Verdict:
    below, count, ratios = 0, 0, []
    for curve in curves:
        require_columns(curve.trials, [column], numbers=True)
        proven = curve.mean_of(column).to_numpy(dtype=float)
        means = curve.points["mean"].to_numpy(dtype=float)
        known = np.isfinite(proven)
        below += int((means[known] < proven[known]).sum())
        count += int(known.sum())
        ratios += list(means[known] / proven[known])
    if not count:
        return Verdict(None, f"no point has {column}")
    span = f"{min(ratios):.2f} to {max(ratios):.2f} times what is proven"
    return Verdict(below == 0, f"{below} of the {count} points for which it is known lie below it; they reach {span}")


def _judge_equal(names: Sequence[str], curves: Sequence[Curve]) -> Verdict:
    """The mean difference at the same x, curve by curve, with a t interval over seeds."""
    words, equal = [], []
    for first, second in _pairs(names, curves):
        difference = advantage(first, second)
        if difference is None:
            continue
        mean, low, high = difference
        if math.isnan(low):
            return Verdict(None, f"a single seed does not say how far {names[0]} and {names[1]} may be apart by chance")
        equal.append(low <= 0 <= high)
        shared = first.name.partition(", ")[2]
        better = names[0] if mean > 0 else names[1]
        sizes = sorted((abs(low), abs(high)))
        least = sizes[0] if low * high > 0 else 0.0
        where = f"{shared}: " if shared else ""
        words.append(f"{where}{better} is {abs(mean):.3f} better (95 % {least:.3f} to {sizes[1]:.3f})")
    if not words:
        return Verdict(None, f"{names[0]} and {names[1]} have no x in common")
    return Verdict(all(equal), f"at the same {curves[0].x}, in {curves[0].y}: {'; '.join(words)}")


def _pairs(names: Sequence[str], curves: Sequence[Curve]) -> list[tuple[Curve, Curve]]:
    """Curves of the two series that agree in everything else by which curves are told apart."""
    found = {curve.name: curve for curve in curves}
    pairs = []
    for name, curve in found.items():
        series, comma, rest = name.partition(", ")
        partner = found.get(f"{names[1]}{comma}{rest}")
        if series == names[0] and partner is not None:
            pairs.append((curve, partner))
    return pairs


def advantage(first: Curve, second: Curve) -> tuple[float, float, float] | None:
    """How much more the first reaches, with a 95 % interval, at the x of its points; the second is interpolated."""
    one, other = _by_seed(first), _by_seed(second)
    x = one.index[(one.index >= other.index.min()) & (one.index <= other.index.max())].to_numpy(dtype=float)
    if not len(x):
        return None
    ours, theirs = (_mean_of_each_seed(table, x) for table in (one, other))
    low, high = difference_interval(ours, theirs)
    return float(ours.mean() - theirs.mean()), low, high


def _mean_of_each_seed(table: pd.DataFrame, x: Numbers) -> Numbers:
    return np.array([np.interp(x, table.index, table[seed]).mean() for seed in table])


def _by_seed(curve: Curve) -> pd.DataFrame:
    table = curve.trials.pivot_table(index=curve.x, columns="seed", values=curve.y)
    return table.dropna(axis=1).sort_index()


def fit_rows(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Every fit of every curve as plain data."""
    return [
        {
            "curve": curve.name,
            "law": one.law,
            "parameters": one.parameters,
            "intervals": {name: list(pair) for name, pair in one.intervals.items()},
            "sigma": one.sigma,
            "aicc": one.aicc,
            "points": one.points,
            "at_ceiling": one.censored,
        }
        for curve in curves
        for one in curve.fits
    ]
