from __future__ import annotations

import math

import numpy as np
import pytest
from samples import make_record

from membench.analysis.intervals import mean_interval
from membench.measure.metrics import METRICS
from membench.records.store import Entry
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import MEANS, ranked, summarise, tables


def records(name: str, *accuracies: float, parameters: int = 100, **more: object) -> list[object]:
    architecture = {"name": name, "config": {}, "label": ""}
    return [
        make_record(
            id=name,
            seed=seed,
            architecture=architecture,
            metrics={"accuracy": value},
            size={"parameters": parameters},
            **more,
        )
        for seed, value in enumerate(accuracies)
    ]


def test_the_columns_say_what_is_averaged_over_trials() -> None:
    frame = to_frame([make_record(seed=seed, metrics={"bits": float(seed)}) for seed in (0, 1)])
    assert set(MEANS) <= set(frame)
    (row,) = summarise(frame).to_dict("records")
    assert (row["bits"], row["parameters"], row["seeds"]) == (0.5, 100, 2)
    assert {"bits", "buffers", "load", "chance", *METRICS} <= set(MEANS)
    assert not {"seeds", "low", "high", "rank"} & set(MEANS)


def test_a_row_is_the_mean_over_seeds_with_an_interval() -> None:
    (row,) = summarise(to_frame(records("a", 0.4, 0.5, 0.6))).to_dict("records")  # type: ignore[arg-type]
    assert row["seeds"] == 3
    assert row["accuracy"] == pytest.approx(0.5)
    assert (row["low"], row["high"]) == pytest.approx((0.5 - 0.2484, 0.5 + 0.2484), abs=1e-4)  # t of two degrees
    assert row["lower_bound_name"] == "corollary-2"
    assert (row["lower_bound"], row["zero_head"], row["chance"]) == pytest.approx((0.1, 0.07, 0.02))


def test_one_seed_has_no_interval() -> None:
    assert all(math.isnan(end) for end in mean_interval(np.array([0.5])))


def test_failed_and_repeated_records_do_not_count() -> None:
    twice = [*records("a", 0.5, 0.6), *records("a", 0.5), make_record(id="b", status="failed")]
    assert len(to_frame(twice)) == 2  # type: ignore[arg-type]


def test_overlapping_intervals_share_a_rank_and_clear_ones_do_not() -> None:
    all_records = [*records("best", 0.90, 0.91), *records("near", 0.89, 0.905), *records("far", 0.5, 0.51)]
    rows = ranked(summarise(to_frame(all_records)))  # type: ignore[arg-type]
    assert list(zip(rows["architecture"], rows["rank"], rows["tied"], strict=True)) == [
        ("best", 1, True), ("near", 1, True), ("far", 3, False),
    ]  # fmt: skip


def test_of_equal_accuracies_the_smaller_model_comes_first() -> None:
    rows = ranked(summarise(to_frame([*records("big", 1.0, parameters=200), *records("small", 1.0)])))  # type: ignore[arg-type]
    assert list(rows["architecture"]) == ["small", "big"]


def test_the_front_is_what_nothing_as_small_beats() -> None:
    best, small = records("best", 0.9, parameters=300), records("small", 0.5, parameters=100)
    rows = ranked(summarise(to_frame([*best, *small, *records("beaten", 0.8, parameters=400)])))  # type: ignore[arg-type]
    assert dict(zip(rows["architecture"], rows["pareto"], strict=True)) == {
        "best": True, "beaten": False, "small": True,
    }  # fmt: skip


def distribution(name: str, kl: float, accuracy: float) -> object:
    task = {**make_record().task, "kind": "distribution"}
    architecture = {"name": name, "config": {}, "label": ""}
    metrics = {"accuracy": accuracy, "kl": kl}
    return make_record(id=name, architecture=architecture, task=task, bounds=[], metrics=metrics)


def test_facts_that_are_distributions_are_ranked_by_divergence() -> None:
    rows = ranked(summarise(to_frame([distribution("likely", 0.9, 0.7), distribution("near", 0.1, 0.6)])))  # type: ignore[list-item]
    assert list(zip(rows["architecture"], rows["rank"], strict=True)) == [("near", 1), ("likely", 2)]


def test_a_row_without_a_number_is_last_and_shares_no_rank() -> None:
    rows = ranked(summarise(to_frame([*records("a", 0.1), *records("none", math.nan)])))  # type: ignore[arg-type]
    assert list(zip(rows["architecture"], rows["rank"], rows["pareto"], strict=True)) == [
        ("a", 1, True), ("none", 2, False),
    ]  # fmt: skip


def test_many_rows_have_the_intervals_that_each_has_alone() -> None:
    rng = np.random.default_rng(3)
    values = {f"m{number}": rng.random(2 + number % 3) for number in range(20)}
    rows = summarise(to_frame([r for name, some in values.items() for r in records(name, *map(float, some))]))  # type: ignore[arg-type]
    for row in rows.to_dict("records"):
        assert (row["low"], row["high"]) == pytest.approx(mean_interval(values[row["architecture"]], ceiling=1.0))


def test_seeds_that_agree_have_an_interval_of_no_width() -> None:
    assert mean_interval(np.full(7, 0.1)) == (0.1, 0.1)


def test_published_rows_stay_apart_from_yours() -> None:
    entries = [Entry(make_record(), published=True), Entry(make_record(metrics={"accuracy": 0.7}))]
    assert sorted(summarise(to_frame(entries))["accuracy"]) == [0.5, 0.7]


def test_the_load_is_what_the_facts_take_for_each_parameter() -> None:
    task = {**make_record().task, "contexts": 256, "answers": 16}
    (row,) = summarise(to_frame([make_record(task=task)])).to_dict("records")
    assert row["load"] == pytest.approx(256 * 4 / 100)


def test_ratios_to_what_is_proven_and_to_the_convex_oracle() -> None:
    proven = [
        {"name": "theorem-1", "quantity": "associations", "direction": "lower", "value": 20.0, "status": "applies"},
        {"name": "silent", "quantity": "associations", "direction": "lower", "value": 99.0, "status": "vacuous"},
    ]
    construct = {"name": "construct", "version": 1, "config": {}, "label": ""}
    oracle = make_record(id="o", protocol=construct, trace={"construction": "convex-readout", "certified": 50})
    trained = make_record(bounds=proven, metrics={"associations": 100.0})
    rows = summarise(to_frame([trained, oracle])).set_index("id")
    assert rows.loc["abc", "ratio_to_bound"] == 5
    assert rows.loc["abc", "ratio_to_oracle"] == 2
    assert math.isnan(rows.loc["o", "ratio_to_bound"])


def test_one_record_that_nobody_checked_cannot_sort_a_table_anew() -> None:
    honest = [make_record(id=str(size), size={"parameters": size}) for size in (100, 200)]
    liar = make_record(id="liar", task={**honest[0].task, "kind": "distribution"}, metrics={"accuracy": 0.1, "kl": 0.0})
    for verified in (True, False):
        found = [*(Entry(one, verified=verified) for one in honest), Entry(liar)]
        (table,) = tables(summarise(to_frame(found)))
        assert (table.by, table.models[-1]["id"]) == ("accuracy", "liar")
