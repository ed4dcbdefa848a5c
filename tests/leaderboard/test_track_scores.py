"""Standings: scores that follow from an architecture's own rows, and what a row says beside them."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from boards import track_records
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from samples import make_record

from membench.records.record import Record
from membench_leaderboard.data import board_data
from membench_leaderboard.frame import to_frame
from membench_leaderboard.page import page
from membench_leaderboard.rows import Row, summarise
from membench_leaderboard.select import select
from membench_leaderboard.terminal import overviews
from membench_leaderboard.track_scores import Score, standings, track_rows
from membench_leaderboard.track_tables import overview
from membench_leaderboard.tracks import ACCURACY, EFFICIENCY, N, Track

BOUND = {"name": "theorem", "quantity": "associations", "direction": "lower", "value": 200.0, "reason": None}


def record(name: str, size: int, accuracy: float, seed: int, facts: int, **changes: Any) -> Record:
    track: Track = changes.pop("track", ACCURACY)
    task = changes.pop("task", ACCURACY.tasks[0])
    parameters = round(0.97 * size)
    held = facts * (accuracy - 1 / N) / (1 - 1 / N)
    config = task.config if f"T0={facts}" in task.config else task.config.replace(" zipf", f" T0={facts} zipf")
    label = f"size={size} {changes.pop('shape', '')}".strip()
    fields: dict[str, Any] = {
        "id": hashlib.sha256(repr((name, label, config, track.name)).encode()).hexdigest()[:12],
        "seed": seed,
        "architecture": {"name": name, "config": {}, "label": label},
        "task": {"name": task.task, "version": 1, "config": {}, "label": config, "kind": "association",
                 "contexts": facts, "vocab": N, "answers": N, "length": 2},
        "protocol": {"name": track.protocol, "version": 2, "config": {}, "label": track.protocol_config},
        "size": {"parameters": parameters, "without_embeddings": 1, "buffers": 0, "storage_bits": 32 * parameters,
                 "learned_bits": 32 * parameters},
        "metrics": {"accuracy": accuracy, "kl": 1.0, "associations": held, "bits": held * math.log2(N),
                    "bits_per_parameter": held * math.log2(N) / parameters},
        "bounds": [BOUND],
        "run": {"cpu_seconds": 2.0, "probe_cpu_seconds": 1.0},
    }  # fmt: skip
    return make_record(**{**fields, **changes})


def ranked(records: Sequence[Record], track: Track = ACCURACY) -> list[Row]:
    found = {one.name: rows for one, rows in track_rows(summarise(to_frame(records)))}
    return found.get(track.name, [])


# ---- one more size ----------------------------------------------------------------------------------------

NAMES = ("one", "two", "three")
Sizes = Mapping[tuple[str, int, int], float]  # accuracies by architecture, task and size


@st.composite
def boards(draw: st.DrawFn) -> tuple[dict[tuple[str, int, int], float], tuple[str, int, int]]:
    """Accuracies that do not fall with the size, some of them missing; and which of the missing is run next."""
    curves = {
        (name, task): sorted(draw(st.lists(st.floats(0.02, 1.0), min_size=9, max_size=9)))
        for name in NAMES
        for task in range(len(ACCURACY.tasks))
    }
    every = {(*key, number): value for key, curve in curves.items() for number, value in enumerate(curve)}
    ran = draw(st.sets(st.sampled_from(sorted(every)), min_size=2, max_size=len(every) - 1))
    following = draw(st.sampled_from(sorted(set(every) - ran)))
    return {key: every[key] for key in (*sorted(ran), following)}, following


def rows_of(accuracies: Sizes) -> list[Row]:
    """Rows as `summarise` makes them, but without going through records: hundreds of boards are tried."""
    found = []
    for (name, number, at), accuracy in accuracies.items():
        task, size = ACCURACY.tasks[number], ACCURACY.sizes[at]
        columns = summarise_once().to_dict("records")[0]
        found.append({**columns, "architecture": name, "parameters": size, "accuracy": accuracy, "low": math.nan,
                      "high": math.nan, "accuracies": [accuracy], "id": f"{name}{number}{at}", "task": task.task,
                      "task_config": task.config})  # fmt: skip
    return found


def summarise_once() -> Any:
    if not _SUMMARISED:
        _SUMMARISED.append(summarise(to_frame([record("one", 500, 0.5, 0, 1291)])))
    return _SUMMARISED[0]


_SUMMARISED: list[Any] = []


def scores_of(row: Row) -> dict[str, Score]:
    return {task: told["score"] for task, told in row["tasks"].items() if told}


@settings(max_examples=150, deadline=None)
@given(boards())
def test_one_more_size_of_one_architecture_says_nothing_of_two_others(
    board: tuple[dict[tuple[str, int, int], float], tuple[str, int, int]],
) -> None:
    after, following = board
    before = {key: value for key, value in after.items() if key != following}
    name = following[0]
    old, new = standings(ACCURACY, rows_of(before)), standings(ACCURACY, rows_of(after))
    others = [
        [
            (row["architecture"], row["level"], {task: (one.value, one.gaps) for task, one in scores_of(row).items()})
            for row in some
            if row["architecture"] != name
        ]
        for some in (old, new)
    ]
    assert others[0] == others[1]


@settings(max_examples=150, deadline=None)
@given(boards())
def test_one_more_size_refines_a_score_within_what_its_gaps_left_open(
    board: tuple[dict[tuple[str, int, int], float], tuple[str, int, int]],
) -> None:
    after, (name, number, at) = board
    before = {key: value for key, value in after.items() if key != (name, number, at)}
    task = ACCURACY.tasks[number].name
    old, new = (
        {row["architecture"]: scores_of(row).get(task) for row in standings(ACCURACY, rows_of(some))}
        for some in (before, after)
    )
    first, second = old.get(name), new[name]
    assert second
    if first is None:  # nothing was known of it
        return
    assert first.value - 1e-12 <= second.value <= first.at_most + 1e-12
    assert second.at_most <= first.at_most + 1e-12
    assert second.gaps == first.gaps - 1


def test_an_architecture_is_ranked_by_its_own_scores_alone() -> None:
    """With a task that counts for nothing below a part of the best, a third would have swapped these two."""

    def accuracies(best: float) -> dict[tuple[str, int, int], float]:
        levels = {"one": (0.9, 0.2), "two": (0.5, 0.37), "three": (best, best)}
        return {(name, task, 0): value for name, some in levels.items() for task, value in enumerate(some)}

    orders = []
    for best in (0.1, 1.0):
        rows = standings(ACCURACY, rows_of(accuracies(best)))
        orders.append([row["architecture"] for row in rows if row["architecture"] != "three"])
    assert orders[0] == orders[1]


# ---- what a row says at once ------------------------------------------------------------------------------


def test_a_track_ranks_over_the_tasks_that_were_chosen() -> None:
    rows = summarise(to_frame(track_records()))
    (whole, _), *_ = track_rows(rows)
    assert [task.name for task in whole.tasks] == ["bigram", "ngram", "zipf"]
    chosen = select(rows, task="ngram")
    (track, some), (constructions, _) = track_rows(chosen)
    assert [[task.name for task in one.tasks] for one in (track, constructions)] == [["ngram"], ["ngram"]]
    for row in some:
        assert list(row["tasks"]) == ["ngram"]
        assert row["level"] == pytest.approx(row["tasks"]["ngram"]["score"].value)
    headers, *_ = overview(track, some)
    assert "bigram" not in headers
    (zipf, _), *_ = track_rows(select(rows, task="bigram", options=["zipf=1"]))
    assert [task.name for task in zipf.tasks] == ["zipf"]


def test_a_row_says_how_many_facts_a_parameter_holds_and_what_that_is_near_to() -> None:
    accuracies = (0.49, 0.5, 0.51)
    small = [record("aot", 500, 0.2, seed, 1291) for seed in range(3)]
    large = [record("aot", 834, accuracy, seed, 1291) for seed, accuracy in enumerate(accuracies)]
    (row,) = ranked([*small, *large])
    held = 1291 * (0.5 - 1 / 64) / (1 - 1 / 64)
    assert row["facts_per_parameter"] == pytest.approx(held / 809)
    assert row["facts_low"] < row["facts_per_parameter"] < row["facts_high"]
    assert row["facts_of_limit"] == pytest.approx(held * 6 / (32 * 809))
    assert row["facts_times_proven"] == pytest.approx(held / 200, rel=1e-3)  # of means, and not a mean of ratios
    assert row["cpu_seconds"] == pytest.approx(2 * 3.0)  # a seed of each size, with its probes
    assert row["tasks"]["bigram"]["score"].gaps == 7


def test_what_is_not_known_is_not_guessed() -> None:
    (row,) = ranked([record("aot", 500, 0.5, seed, 1291, bounds=[], run={}) for seed in range(2)])
    assert math.isnan(row["facts_times_proven"])
    assert math.isnan(row["cpu_seconds"])


def test_a_search_says_the_facts_at_its_threshold() -> None:
    """Everything right up to 300 facts, and half of it from 400 on."""
    records = [
        record("aot", 1000, 1.0 if facts <= 300 else 0.5, seed, facts, track=EFFICIENCY, task=EFFICIENCY.tasks[0])
        for facts in (200, 300, 400, 600)
        for seed in range(5)
    ]
    (row,) = ranked(records, EFFICIENCY)
    cell = row["tasks"]["bigram"]["score"].cells[0]
    assert 300 <= cell.more["facts"] <= 400
    assert row["facts_per_parameter"] == pytest.approx(cell.more["facts"] / 970)
    assert row["facts_low"] <= row["facts_per_parameter"] <= row["facts_high"]
    assert row["facts_per_parameter"] * 6 == pytest.approx(cell.value, rel=1e-6)  # bits per parameter at 99 %
    assert row["cpu_seconds"] == pytest.approx(4 * 3.0)  # of every number of facts that was tried


# ---- the same numbers everywhere --------------------------------------------------------------------------


def printed(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in overviews(track_rows(summarise(to_frame(track_records()))), width=width):
        console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d\.\d{2,}", text))


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_of_any_width_has_the_overview_first_and_every_number_of_the_page(width: int) -> None:
    text = printed(width)
    assert text.startswith(ACCURACY.title)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    shown = page(board_data(track_records()))
    cells = {cell for table in re.findall(r'<table class="(?:overview|sizes)">.*?</table>', shown, re.S)
             for cell in re.findall(r"<t[dh][^>]*>(?:<a[^>]*>)?([^<]+)", table)}  # fmt: skip
    for cell in cells:
        assert cell in text, cell
    assert len(numbers(text)) > 50
    assert numbers(text) == numbers(printed(200))


def test_the_page_and_the_terminal_have_architectures_in_the_same_order() -> None:
    rows = summarise(to_frame(track_records()))
    shown = page(board_data(track_records()))
    tables = re.findall(r'<table class="overview">.*?</table>', shown, re.S)
    for table, (_, some) in zip(tables, track_rows(rows), strict=True):
        names = re.findall(r'<a href="#[^"]*">([^<]+)</a>', table)
        assert names == [row["architecture"] for row in some]
