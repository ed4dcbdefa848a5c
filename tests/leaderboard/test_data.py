from __future__ import annotations

import json
import math
from typing import Any

from samples import make_record

from membench.records.store import Entry
from membench_leaderboard.data import as_csv, board_data
from membench_leaderboard.frame import to_frame
from membench_leaderboard.markdown import rows_as_markdown
from membench_leaderboard.rows import summarise

ROW = {
    "rank", "tied", "pareto", "architecture", "config", "id", "seeds", "parameters", "without_embeddings", "buffers",
    "identifiable", "accuracy", "low", "high", "kl", "excess_kl", "associations", "bits", "bits_per_parameter", "load",
    "lower_bound", "lower_bound_name", "zero_head", "chance", "ratio_to_bound", "ratio_to_oracle", "converged",
    "origin", "verification", "published", "membench", "command",
}  # fmt: skip
SCORE = {
    "rank", "tied", "architecture", "budgets", "area", "area_low", "area_high", "peak_bits_per_parameter",
    "load_at_99", "ratio_to_bound", "ratio_to_oracle", "excess_kl", "origin", "verification", "published", "membench",
}  # fmt: skip
QUICK = {"name": "quick", "version": 1, "config": {}, "label": ""}
CONSTRUCT = {"name": "construct", "version": 1, "config": {}, "label": ""}


def only(data: dict[str, Any]) -> dict[str, Any]:
    (table,) = data["tables"]
    return table  # type: ignore[no-any-return]


def test_everything_that_a_page_needs_is_there_and_is_json() -> None:
    data = board_data([make_record(), make_record(seed=1), make_record(id="b", metrics={"accuracy": math.nan})])
    table = only(json.loads(json.dumps(data, allow_nan=False)))
    assert (table["task"], table["protocol"], table["ranked"], table["sorted_by"]) == (
        "bigram", "converged", True, "accuracy",
    )  # fmt: skip
    assert all(set(row) >= ROW for row in table["rows"])
    assert all(set(score) >= SCORE for score in table["scores"])
    assert table["rows"][1]["accuracy"] is None
    assert data["architectures"]["aot"]["summary"]
    assert table["rows"][0]["command"] == "membench run --model aot --task bigram --seeds 2"


def test_an_architecture_that_is_not_installed_has_no_summary() -> None:
    data = board_data([make_record(architecture={"name": "<b>", "config": {}, "label": ""})])
    assert data["architectures"] == {"<b>": {"summary": "", "reference": ""}}


def test_quick_runs_have_no_ranks_and_constructions_are_marked() -> None:
    quick = only(board_data([make_record(protocol=QUICK)]))
    assert (quick["ranked"], quick["rows"][0]["rank"], quick["scores"][0]["rank"]) == (False, None, None)
    assert quick["rows"][0]["pareto"] is None
    assert only(board_data([make_record(protocol=CONSTRUCT)]))["rows"][0]["origin"] == "constructed"
    assert only(board_data([make_record()]))["rows"][0]["origin"] == "trained"


def test_a_row_is_verified_when_all_its_seeds_are() -> None:
    one, other = Entry(make_record(), verified=True), Entry(make_record(seed=1))
    assert only(board_data([one]))["rows"][0]["verification"] == "verified, unsigned"
    assert only(board_data([one, other]))["rows"][0]["verification"] == "self-reported"


def test_versions_never_share_a_table() -> None:
    newer = {"name": "bigram", "version": 2, "config": {"N": 50}, "label": "N=50"}
    other = {"name": "converged", "version": 1, "config": {}, "label": ""}
    assert (
        len(board_data([make_record(), make_record(id="x", task=newer), make_record(id="y", protocol=other)])["tables"])
        == 3
    )


def test_the_page_the_document_and_the_csv_have_one_order_and_the_same_numbers() -> None:
    records = [
        make_record(id=f"id{number}", metrics={"accuracy": accuracy}, size={"parameters": 100 * number})
        for number, accuracy in enumerate((0.25, 0.75, 0.5), 1)
    ]
    rows = summarise(to_frame(records))
    ids = [row["id"] for row in only(board_data(records))["rows"]]
    assert ids == ["id2", "id3", "id1"]
    for text in (as_csv(rows), rows_as_markdown(rows)):
        assert sorted(ids, key=text.index) == ids
        assert text.index("0.75") < text.index("0.5")
