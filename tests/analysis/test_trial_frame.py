"""Records as columns: names, conditions, and points that must not be mixed."""

from __future__ import annotations

from typing import Any

import pytest
from samples import make_record

from membench.analysis.trial_frame import keep, require_columns, require_like, trial_frame
from membench.errors import UsageError
from membench.records.record import Record


def record(seed: int = 0, model: dict[str, Any] | None = None, task: dict[str, Any] | None = None) -> Record:
    config = {"d": 10, "H": 1, "tied": False, **(model or {})}
    return make_record(
        id=f"{sorted(config.items())}{task}",
        seed=seed,
        architecture={"name": "aot", "config": config},
        task={"name": "bigram", "version": 1, "config": {"N": 50, **(task or {})}},
    )


def test_options_sizes_metrics_and_bounds_are_columns() -> None:
    frame = trial_frame([record()])
    row = frame.iloc[0]
    assert (row["d"], row["model.d"], row["N"], row["task.N"]) == (10, 10, 50, 50)
    assert (row["model"], row["parameters"], row["accuracy"]) == ("aot", 100, 0.5)
    assert (row["proven_accuracy"], row["zero_head"], row["chance"]) == (0.1, 0.07, 0.02)


def test_a_name_that_two_parts_share_is_only_there_in_full() -> None:
    frame = trial_frame([record(task={"d": 3})])
    assert "d" not in frame
    assert (frame["model.d"][0], frame["task.d"][0]) == (10, 3)


def test_failed_records_and_repeated_trials_do_not_count() -> None:
    assert trial_frame([make_record(status="failed")]).empty
    assert len(trial_frame([record(), record(), record(seed=1)])) == 2


def test_conditions_keep_values_and_lists_and_say_what_there_is() -> None:
    frame = trial_frame([record(model={"H": H, "tied": H == 3}) for H in (1, 2, 3)])
    assert list(keep(frame, {"H": "1,3"})["H"]) == [1, 3]
    assert list(keep(frame, {"tied": "true"})["H"]) == [3]
    with pytest.raises(UsageError, match=r"no record has H=7; there are: 1, 2, 3"):
        keep(frame, {"H": "7"})


def test_a_column_that_is_none_gets_the_nearest_name() -> None:
    frame = trial_frame([record()])
    with pytest.raises(UsageError, match=r"unknown column 'acuracy'; did you mean 'accuracy'"):
        require_columns(frame, ["acuracy"])
    with pytest.raises(UsageError, match=r"column 'model' holds text such as 'aot'"):
        require_columns(frame, ["model"], numbers=True)


def test_points_that_differ_in_something_else_are_not_averaged() -> None:
    frame = trial_frame([record(seed=seed, model={"tied": seed == 1}) for seed in (0, 1)])
    with pytest.raises(UsageError, match=r"records with H=1 differ in tied \(false, true\).*--where model.tied=false"):
        require_like(frame, "H", [])
    require_like(frame, "H", ["tied"])
    require_like(keep(frame, {"tied": "false"}), "H", [])
