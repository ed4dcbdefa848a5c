"""The same numbers have the same interval wherever they are asked for, and it covers what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from samples import make_record

from membench.analysis.curves import Curve
from membench.analysis.intervals import (
    RESAMPLES,
    combined_interval,
    difference_interval,
    mean_interval,
    resampled_successes,
    resampled_weights,
)
from membench.capacity_search.capacity import Capacity
from membench.capacity_search.measurement import Measurement
from membench.capacity_search.subject import Subject
from membench.capacity_search.threshold import peak, threshold
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.records.store import Store
from membench.regress.compare import compare, samples
from membench.results import Results
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise

FIVE = (0.51, 0.58, 0.49, 0.6, 0.55)
SEEDS = tuple(range(5))


def capacity_of(accuracies: tuple[float, ...]) -> Capacity:
    """As a search would leave it that tried one number of facts."""
    options = ["N=6"]
    trials = plan(Registry(), Request(["lookup"], ["bigram"], (), options, "quick", seeds=SEEDS))
    done = [Measurement(9, seed, 9, 0.5, accuracy, accuracy) for seed, accuracy in zip(SEEDS, accuracies, strict=True)]
    subject = Subject.of(trials, "T0", options)
    return Capacity(subject, (1.0,), done, [threshold(done, (1.0,), 1.0)], peak(done), Store(Path("results")), 0)


def test_board_capacity_gate_curve_and_python_give_the_same_interval() -> None:
    records = [make_record(seed=seed, metrics={"accuracy": value}) for seed, value in zip(SEEDS, FIVE, strict=True)]
    nothing = [make_record(seed=seed, metrics={"accuracy": 0.0}) for seed in SEEDS]
    expected = mean_interval(np.array(FIVE))
    assert 0.48 < expected[0] < np.mean(FIVE) < expected[1] < 0.62
    (row,) = summarise(to_frame(records)).to_dict("records")
    assert (row["low"], row["high"]) == expected
    (value,) = capacity_of(FIVE).as_json()["values"]
    assert (value["low"], value["high"]) == expected
    top = capacity_of(FIVE).peak
    assert top is not None
    assert (top.low, top.high) == expected
    (compared,) = compare(samples(nothing), samples(records), lambda sample: {"accuracy": 0.01}).rows
    assert (compared.low, compared.high) == expected
    curve = Curve("", "H", "accuracy", pd.DataFrame({"H": [1] * 5, "accuracy": FIVE}))
    assert tuple(curve.points[["low", "high"]].iloc[0]) == expected
    assert tuple(Results(records).summary()[["low", "high"]].iloc[0]) == expected


def test_a_single_seed_has_no_interval() -> None:
    assert np.isnan(mean_interval(np.array([0.5]))).all()
    assert np.isnan(difference_interval(np.array(FIVE), np.array([0.5]))).all()


def test_seeds_that_agree_have_an_interval_without_width() -> None:
    assert mean_interval(np.full(7, 0.1)) == (0.1, 0.1)


def test_an_accuracy_is_not_said_to_be_above_one() -> None:
    low, high = mean_interval(np.array([0.99, 1.0, 1.0, 1.0, 1.0]), ceiling=1.0)
    assert low < 0.998 < high == 1.0


def test_means_have_the_interval_of_student() -> None:
    values = np.array(FIVE)
    half = 2.7764451051977987 * values.std(ddof=1) / math.sqrt(5)  # t of 4 degrees of freedom
    assert mean_interval(values) == pytest.approx((values.mean() - half, values.mean() + half))


def covered(draw: Callable[[np.random.Generator], tuple[float, float]], truth: float = 0.0, times: int = 4000) -> float:
    rng = np.random.default_rng(7)
    ends = [draw(rng) for _ in range(times)]
    return float(np.mean([low <= truth <= high for low, high in ends]))


@pytest.mark.parametrize("seeds", [2, 3, 5, 20])
def test_the_interval_of_a_mean_covers_it_in_95_of_100_cases(seeds: int) -> None:
    assert covered(lambda rng: mean_interval(rng.normal(size=seeds))) == pytest.approx(0.95, abs=0.012)


def test_the_interval_of_a_difference_covers_it_with_unequal_spreads_and_numbers() -> None:
    found = covered(lambda rng: difference_interval(rng.normal(size=5), 3 * rng.normal(size=8)))
    assert found == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_a_weighted_sum_covers_it() -> None:
    weights = (0.5, 0.3, 0.2)
    found = covered(lambda rng: combined_interval(weights, [rng.normal(size=n) for n in (5, 5, 3)]))
    assert 0.94 <= found <= 0.98  # Satterthwaite is a little wide


def test_a_percentile_bootstrap_of_five_seeds_would_cover_less() -> None:
    def percentile(rng: np.random.Generator) -> tuple[float, float]:
        values = rng.normal(size=5)
        low, high = np.quantile(rng.choice(values, (500, 5)).mean(axis=1), [0.025, 0.975])
        return float(low), float(high)

    assert covered(percentile, times=1000) < 0.88


def test_weights_of_a_fit_keep_the_number_of_points_and_make_up_for_few_seeds() -> None:
    x = np.repeat([1.0, 2.0], 5)
    weights = resampled_weights(x)
    assert weights.shape == (RESAMPLES, 10)
    assert weights[:, :5].sum(axis=1) == pytest.approx(np.full(RESAMPLES, 5.0))
    spread = (weights[:, :5] @ np.array(FIVE) / 5).std()
    assert spread == pytest.approx(np.std(FIVE, ddof=1) / math.sqrt(5), rel=0.05)
    assert len(resampled_weights(np.arange(5.0))) == 0  # one seed at each x


def test_successes_are_drawn_with_their_chance() -> None:
    drawn = resampled_successes(np.array([5, 5, 5]), np.array([0.0, 0.5, 1.0]))
    assert drawn.shape == (RESAMPLES, 3)
    assert drawn.mean(axis=0) == pytest.approx([0, 2.5, 5], abs=0.1)
