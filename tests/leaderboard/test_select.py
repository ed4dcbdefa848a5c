from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import make_record

from membench.errors import UsageError
from membench.records.store import Entry
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise
from membench_leaderboard.select import board_rows, find_row, select

NGRAM = {"name": "ngram", "version": 1, "config": {}, "label": "N=9"}


def model(name: str, parameters: int = 100, **more: Any) -> Any:
    architecture = {"name": name, "config": {}, "label": ""}
    return make_record(id=name, architecture=architecture, size={"parameters": parameters}, **more)


def rows(*records: Any) -> Any:
    return summarise(to_frame(records))


def names(found: Any) -> list[str]:
    return list(found["architecture"])


def test_rows_are_selected_by_task_protocol_options_and_budget() -> None:
    found = rows(model("a", 10), model("b", 20), model("c", 20, task=NGRAM))
    assert names(select(found)) == ["a", "b", "c"]
    assert names(select(found, task="ngram")) == ["c"]
    assert names(select(found, protocol="converged")) == ["a", "b", "c"]
    assert names(select(found, options=["N=50"])) == ["a", "b"]
    assert names(select(found, budget=10)) == ["a"]


def test_where_nothing_is_selected_it_says_what_there_is() -> None:
    found = rows(model("a", 10), model("c", 20, task=NGRAM))
    with pytest.raises(UsageError, match="there are: bigram, ngram"):
        select(found, task="nothing")
    with pytest.raises(UsageError, match=r"no table matches bigram, N=9; there are: bigram \(N=50\).*; ngram \(N=9\)"):
        select(found, task="bigram", options=["N=9"])
    with pytest.raises(UsageError, match=r"--budget 5: no model is that small; the smallest is a \(\) with 10 param"):
        select(found, budget=5)
    with pytest.raises(UsageError, match="without-embeddings"):
        select(found, budget=5, count="some")


def test_what_was_published_is_shown_where_there_is_something_of_yours_beside_it() -> None:
    published = [Entry(model("p"), published=True), Entry(model("q", task=NGRAM), published=True)]
    assert names(board_rows(published, [], True)) == ["p", "q"]
    assert names(board_rows([*published, Entry(model("mine"))], [Path("results")], True)) == ["p", "mine"]
    with pytest.raises(UsageError, match="no finished trials below 'results'"):
        board_rows(published, [Path("results")], True)


def test_a_row_is_found_by_rank_architecture_or_the_start_of_its_id() -> None:
    found = rows(model("aot", metrics={"accuracy": 0.9}), model("mine", metrics={"accuracy": 0.1}))
    for text in ("1", "aot", "ao"):
        assert find_row(found, text).architecture == "aot"
    assert find_row(found, "2", models=True).architecture == "mine"
