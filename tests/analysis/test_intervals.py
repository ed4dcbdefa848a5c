"""The one bootstrap: the same numbers have the same interval wherever they are asked for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from samples import make_record

from membench.analysis.curves import Curve
from membench.analysis.intervals import (
    RESAMPLES,
    bootstrap_interval,
    difference_interval,
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
    expected = bootstrap_interval(np.array(FIVE))
    assert 0.5 < expected[0] < np.mean(FIVE) < expected[1] < 0.6
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
    assert np.isnan(bootstrap_interval(np.array([0.5]))).all()
    assert np.isnan(difference_interval(np.array(FIVE), np.array([0.5]))).all()


def test_seeds_that_agree_have_an_interval_without_width() -> None:
    assert bootstrap_interval(np.full(7, 0.1)) == (0.1, 0.1)


def test_two_sides_are_resampled_independently() -> None:
    """With the same picks on both sides, two equal samples would differ by nothing in every resample."""
    values = np.array(FIVE)
    low, high = difference_interval(values, values)
    assert low < -0.01 < 0.01 < high
    spread = math.hypot(*(2 * (np.diff(bootstrap_interval(values))[0] / 2,)))
    assert high - low == pytest.approx(2 * spread, rel=0.05)
    assert difference_interval(values + 1, values)[0] == pytest.approx(low + 1, abs=1e-9)


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
