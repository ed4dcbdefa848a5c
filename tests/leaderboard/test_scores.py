from __future__ import annotations

import math
from typing import Any

import pytest
from samples import make_record

from membench.records.store import Entry
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise, tables
from membench_leaderboard.scores import standings


def task(kind: str) -> dict[str, Any]:
    return {**make_record().task, "kind": kind, "contexts": 1000, "answers": 16}


def model(name: str, parameters: int, *accuracies: float, embeddings: int = 0, kind: str = "association") -> list[Any]:
    return [
        make_record(
            id=f"{name}{parameters}",
            seed=seed,
            architecture={"name": name, "config": {"p": parameters}, "label": ""},
            size={"parameters": parameters, "without_embeddings": parameters - embeddings},
            metrics={"accuracy": value, "kl": 1 - value, "bits_per_parameter": value},
            task=task(kind),
        )
        for seed, value in enumerate(accuracies)
    ]


def scores(*records: Any) -> list[dict[str, Any]]:
    (table,) = tables(summarise(to_frame([one for some in records for one in some])))
    return standings(table)


def test_a_budget_takes_the_best_model_that_fits_by_either_count() -> None:
    (one,) = scores(model("a", 2_900, 0.2), model("a", 3_001, 0.6, embeddings=1), model("a", 2_000, 0.3))
    at = one["budgets"]["3000"]
    assert (at["all"]["accuracy"], at["all"]["id"]) == (0.3, "a2000")
    assert (at["without-embeddings"]["accuracy"], at["without-embeddings"]["id"]) == (0.6, "a3001")
    assert one["budgets"]["10000"]["all"]["accuracy"] == 0.6
    (large,) = scores(model("a", 20_000, 0.2))
    assert large["budgets"]["10000"]["all"] is None


def test_the_area_is_the_mean_of_the_best_accuracy_over_log_parameters() -> None:
    (one,) = scores(model("a", 1_000, 0.2), model("a", 10_000, 0.5), model("a", 20_000, 0.4), model("a", 50_000, 0.9))
    width = math.log(100 / 3)
    assert one["area"] == pytest.approx(
        (0.2 * math.log(10 / 3) + 0.5 * math.log(5) + 0.9 * math.log(2)) / width
    )  # the worse model of 20,000 counts for nothing


def test_the_area_lies_between_0_and_1_and_nothing_counts_as_0() -> None:
    assert scores(model("a", 100, 1.0))[0]["area"] == 1
    assert scores(model("a", 100_000, 1.0))[0]["area"] == 0
    (half,) = scores(model("a", round(math.sqrt(3_000 * 100_000)), 1.0))
    assert half["area"] == pytest.approx(0.5, abs=1e-4)


def test_the_interval_of_the_area_is_that_of_its_models() -> None:
    (one,) = scores(model("a", 1_000, 0.4, 0.5, 0.6), model("a", 10_000, 0.8, 0.81, 0.82))
    assert 0.4 < one["area_low"] < one["area"] < one["area_high"] < 1
    (single,) = scores(model("a", 1_000, 0.4, 0.5), model("a", 10_000, 0.8))
    assert math.isnan(single["area_low"])


def test_the_interval_of_an_area_of_accuracies_stays_between_0_and_1() -> None:
    (low,) = scores(model("a", 1_000, 0.01, 0.2))
    (high,) = scores(model("a", 1_000, 0.8, 0.99))
    assert (low["area_low"], high["area_high"]) == (0, 1)


def test_overlapping_areas_share_a_rank() -> None:
    found = scores(model("a", 100, 0.80, 0.84), model("b", 100, 0.80, 0.82), model("c", 100, 0.1, 0.12))
    assert [(one["architecture"], one["rank"], one["tied"]) for one in found] == [
        ("a", 1, True), ("b", 1, True), ("c", 3, False),
    ]  # fmt: skip


def test_distributions_are_scored_by_the_least_divergence() -> None:
    found = scores(model("far", 100, 0.1, kind="distribution"), model("near", 100, 0.6, kind="distribution"))
    assert [(one["architecture"], one["area"]) for one in found] == [
        ("near", pytest.approx(0.4)), ("far", pytest.approx(0.9)),
    ]  # fmt: skip
    assert [one["rank"] for one in found] == [1, 2]
    (nothing,) = scores(model("large", 100_000, 0.6, kind="distribution"))
    assert nothing["area"] == pytest.approx(math.log(16))


def test_peak_bits_and_the_load_at_99_percent() -> None:
    (one,) = scores(model("a", 400, 0.98), model("a", 800, 0.99), model("a", 4_000, 1.0))
    assert one["peak_bits_per_parameter"] == 1.0
    assert one["load_at_99"] == pytest.approx(1000 * 4 / 800)
    assert math.isnan(scores(model("a", 400, 0.98))[0]["load_at_99"])


def test_published_and_own_models_of_one_architecture_are_scored_apart() -> None:
    own = model("a", 100, 0.5)
    published = [Entry(one, published=True) for one in model("a", 100, 0.7)]
    found = scores([*own, *published])
    assert [(one["published"], one["area"]) for one in found] == [(True, 0.7), (False, 0.5)]
