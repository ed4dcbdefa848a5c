from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import make_record
from scipy import stats

from membench.regress.compare import (
    IDENTICAL,
    IMPROVED,
    LOST,
    NOISE,
    NOT_COMPARABLE,
    TOO_FEW,
    Comparison,
    Comparisons,
    Sample,
    compare,
    samples,
)
from membench.regress.exact_tests import LEVEL, rank_test, seeds_needed, sign_flip_test

HERE = {
    "python": "3.11.7", "torch": "2.13.0+cpu", "numpy": "2.3", "platform": "Linux x86_64", "cpu": "one", "threads": 1,
    "device": "cpu", "dtype": "float32",
}  # fmt: skip


def sample(values: Sequence[float | None], name: str = "aot", metric: str = "accuracy", **changes: object) -> Sample:
    fields: dict[str, object] = {
        "id": name, "architecture": name, "config": "d=6", "task": "bigram N=16", "protocol": "quick",
        "seeds": tuple(range(len(values))), "metrics": {metric: tuple(values)}, "environment": HERE,
    }  # fmt: skip
    return Sample(**{**fields, **changes})  # type: ignore[arg-type]


def only(old: Sample, new: Sample, metric: str = "accuracy", counts: float = 0.01) -> Comparison:
    (row,) = compare([old], [new], lambda one: {metric: counts}).rows
    return row


def shifted(values: Sequence[float], by: float) -> list[float]:
    return [value + by for value in values]


BEFORE = [0.50, 0.52, 0.48, 0.51, 0.47, 0.53, 0.50, 0.49, 0.52, 0.51, 0.48, 0.50]
WOBBLE = [0.003, -0.002, 0.004, -0.004, 0.001, 0.002, -0.003, 0.001, -0.001, 0.002, -0.002, 0.000]


def test_equal_numbers_are_identical() -> None:
    row = only(sample(BEFORE), sample(BEFORE))
    assert (row.verdict, row.gain) == (IDENTICAL, 0)


def test_a_loss_of_every_seed_is_lost_and_the_first_changed_seed_is_named() -> None:
    row = only(sample(BEFORE), sample([BEFORE[0], *shifted(BEFORE[1:], -0.1)]))
    assert row.verdict == LOST
    assert row.p == pytest.approx(2 / 2**12)  # the seed that did not change counts for either sign
    assert "numbers changed: 11 of 12 seeds, seed 1 first" in row.why


def test_a_gain_of_every_seed_is_an_improvement() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, 0.1)))
    assert (row.verdict, row.p) == (IMPROVED, 1 / 2**12)


def test_less_divergence_is_better() -> None:
    more = only(sample(BEFORE, metric="kl"), sample(shifted(BEFORE, 0.1), metric="kl"), metric="kl")
    less = only(sample(BEFORE, metric="kl"), sample(shifted(BEFORE, -0.1), metric="kl"), metric="kl")
    assert (more.verdict, less.verdict) == (LOST, IMPROVED)
    assert more.gain == pytest.approx(-0.1)


def test_changed_last_digits_are_said_and_do_not_fail() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, -1e-9)))
    assert row.verdict == NOISE
    assert "numbers changed: 12 of 12 seeds, seed 0 first" in row.why


def test_in_another_environment_changed_numbers_are_expected() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, -1e-9), environment={**HERE, "cpu": "another"}))
    assert row.verdict == NOISE
    assert "numbers changed" not in row.why


def test_a_large_change_in_which_seeds_disagree_is_noise() -> None:
    jump = [0.3 if i % 2 else -0.35 for i in range(12)]
    row = only(sample(BEFORE), sample([a + b for a, b in zip(BEFORE, jump, strict=True)]))
    assert row.verdict == NOISE
    assert "seeds disagree" in row.why


def test_a_loss_that_every_seed_has_but_that_is_small_does_not_count() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, -0.005)))
    assert row.verdict == NOISE
    assert row.p is not None
    assert row.p < LEVEL


@pytest.mark.parametrize(("pairs", "verdict"), [(5, TOO_FEW), (6, TOO_FEW), (7, LOST)])
def test_seven_pairs_are_the_fewest_that_can_fail(pairs: int, verdict: str) -> None:
    row = only(sample(BEFORE[:pairs]), sample(shifted(BEFORE[:pairs], -0.2)))
    assert row.verdict == verdict
    assert verdict == LOST or "7 paired seeds" in row.why


def test_too_few_seeds_for_many_comparisons_are_said() -> None:
    old = [sample(BEFORE[:8], name) for name in "abcd"]
    new = [sample(shifted(BEFORE[:8], -0.2), name) for name in "abcd"]
    found = compare(old, new, lambda one: {"accuracy": 0.01})
    assert [row.verdict for row in found.rows] == [TOO_FEW] * 4
    assert seeds_needed(4) == 9
    assert seeds_needed(1) == 7
    assert 40 * 2.0 ** -seeds_needed(40) < LEVEL <= 40 * 2.0 ** -(seeds_needed(40) - 1)


def test_comparisons_that_cannot_fail_do_not_weaken_one_that_can() -> None:
    quiet = [(sample(BEFORE[:8], name), sample(shifted(BEFORE[:8], -1e-6), name)) for name in "bcdefgh"]
    old = [sample(BEFORE[:8], "a"), *(one for one, _ in quiet)]
    new = [sample(shifted(BEFORE[:8], -0.2), "a"), *(one for _, one in quiet)]
    found = compare(old, new, lambda one: {"accuracy": 0.01})
    assert found.family == 1
    assert [row.architecture for row in found.of(LOST)] == ["a"]


def test_an_improvement_elsewhere_does_not_hide_a_loss() -> None:
    old = [sample(BEFORE, "a"), sample(BEFORE, "b")]
    new = [sample(shifted(BEFORE, -0.05), "a"), sample(shifted(BEFORE, 0.4), "b")]
    found = compare(old, new, lambda one: {"accuracy": 0.01})
    assert [(row.architecture, row.verdict) for row in found.rows] == [("a", LOST), ("b", IMPROVED)]


def test_seeds_that_do_not_pair_are_compared_by_ranks() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, -0.2), seeds=tuple(range(100, 112))))
    assert row.verdict == LOST
    assert row.test == "Mann-Whitney, 12 and 12 seeds"
    assert row.p == pytest.approx(1 / math.comb(24, 12))
    few = only(sample(BEFORE[:4]), sample(shifted(BEFORE[:4], -0.2), seeds=(7, 8, 9, 10)))
    assert few.verdict == TOO_FEW


def test_seeds_that_pair_in_part_are_paired_and_the_rest_is_left_out_in_words() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE[:10], -0.2), seeds=tuple(range(2, 12))))
    assert row.test == "sign-flip, 10 pairs"
    assert "2 seeds without a partner left out" in row.why


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"torch": "2.14.0+cpu"}, "torch was 2.13.0+cpu and is 2.14.0+cpu"), ({"device": "cuda"}, "device was cpu")],
)
def test_another_torch_or_device_is_not_comparable(changes: dict[str, str], words: str) -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, -0.2), environment={**HERE, **changes}))
    assert row.verdict == NOT_COMPARABLE
    assert words in row.why


def test_another_build_of_the_same_torch_is_comparable() -> None:
    row = only(sample(BEFORE), sample(shifted(BEFORE, -0.2), environment={**HERE, "torch": "2.13.0+cu130"}))
    assert row.verdict == LOST


def test_other_facts_are_not_comparable() -> None:
    old = sample(BEFORE, facts=("a",) * 12)
    row = only(old, sample(BEFORE, facts=("a",) * 11 + ("b",)))
    assert row.verdict == NOT_COMPARABLE
    assert "facts of seed 11" in row.why


def test_what_is_in_one_set_only_is_named() -> None:
    found = compare([sample(BEFORE, "gone")], [sample(BEFORE, "new")], lambda one: {"accuracy": 0.01})
    assert {row.architecture: row.why.split(" with")[0] for row in found.of(NOT_COMPARABLE)} == {
        "gone": "it was not measured now",
        "new": "it was not measured before",
    }


def test_a_metric_without_numbers_is_not_comparable() -> None:
    row = only(sample(BEFORE), sample([None] * 12))
    assert (row.verdict, row.why) == (NOT_COMPARABLE, "now there is no number for accuracy")
    row = only(sample(BEFORE), sample([*BEFORE[:11], None]))
    assert (row.verdict, row.why) == (NOT_COMPARABLE, "accuracy of seed 11 is no longer a number")


def test_samples_of_records_leave_failures_out_and_keep_the_first_of_two() -> None:
    records = [
        make_record(seed=1, metrics={"accuracy": 0.2}),
        make_record(seed=0, metrics={"accuracy": 0.1, "seconds": 3.0}),
        make_record(seed=0, metrics={"accuracy": 0.9}),
        make_record(seed=2, status="failed", metrics={}),
    ]
    (found,) = samples(records)
    assert (found.seeds, found.metrics) == ((0, 1), {"accuracy": (0.1, 0.2)})
    assert found.task == "bigram N=50"


def test_seeds_from_several_machines_promise_no_digits() -> None:
    records = [make_record(seed=seed, environment={**HERE, "cpu": f"cpu {seed}"}) for seed in range(8)]
    (found,) = samples(records)
    assert found.environment["cpu"] == "several"
    assert found.environment["torch"] == "2.13.0+cpu"


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=7))
def test_the_sign_flip_test_is_the_share_of_signs_that_are_as_bad(gains: list[float]) -> None:
    flips = [np.dot(signs, gains) for signs in itertools.product((1, -1), repeat=len(gains))]
    slack = 1e-9 * max(np.abs(gains).sum(), 1e-12)
    low, high = (np.mean([flip <= sum(gains) + s for flip in flips]) for s in (-slack, slack))
    assert low <= sign_flip_test(np.array(gains), 0.1).p <= high


def test_many_pairs_are_tested_with_random_signs() -> None:
    generator = np.random.default_rng(0)
    gains = generator.normal(-0.3, 1.0, size=40)
    exact_by_normal = stats.norm.cdf(gains.sum() / np.sqrt((gains**2).sum()))
    assert sign_flip_test(gains, 0.1).p == pytest.approx(exact_by_normal, abs=0.01)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=6), st.lists(st.integers(0, 6), min_size=2, max_size=6))
def test_the_rank_test_counts_every_deal_also_with_ties(new: list[int], old: list[int]) -> None:
    ranks = stats.rankdata(new + old)
    seen = ranks[: len(new)].sum()
    deals = [sum(deal) for deal in itertools.combinations(ranks, len(new))]
    expected = np.mean([deal <= seen + 1e-9 for deal in deals])
    assert rank_test(np.array(new, float), np.array(old, float), 0.1).p == pytest.approx(expected)


def test_the_rank_test_agrees_with_scipy_without_ties() -> None:
    generator = np.random.default_rng(1)
    new, old = generator.normal(size=12), generator.normal(0.7, size=9)
    expected = stats.mannwhitneyu(new, old, alternative="less", method="exact").pvalue
    assert rank_test(new, old, 0.1).p == pytest.approx(expected)


def test_false_alarms_over_a_whole_suite_stay_below_the_level() -> None:
    """Pure noise far above what counts, in ten comparisons at once: the correction alone has to hold."""
    generator = np.random.default_rng(0)

    def alarm(paired: bool) -> bool:
        values = generator.normal(0.5, 0.1, size=(2, 10, 12))
        seeds = tuple(range(12 if paired else 100, 24 if paired else 112))
        old = [sample(row.tolist(), str(i), seeds=tuple(range(12, 24))) for i, row in enumerate(values[0])]
        new = [sample(row.tolist(), str(i), seeds=seeds) for i, row in enumerate(values[1])]
        return bool(compare(old, new, lambda one: {"accuracy": 0.001}).of(LOST))

    for paired in (True, False):
        alarms = sum(alarm(paired) for _ in range(40))
        assert alarms <= 3  # with a rate of 1 in 100, more happen less than once in a thousand times


def test_verdicts_are_counted_with_losses_first() -> None:
    old = [sample(BEFORE, "a"), sample(BEFORE, "b")]
    found = compare(old, [sample(BEFORE, "a"), sample(shifted(BEFORE, -0.3), "b")], lambda one: {"accuracy": 0.01})
    assert list(found.counts().items()) == [(LOST, 1), (IDENTICAL, 1)]
    assert Comparisons(()).counts() == {}
