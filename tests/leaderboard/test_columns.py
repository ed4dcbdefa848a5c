"""That a column is one entry in columns.py: whatever it says is what every output shows."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from boards import BAYES, BOUNDS, NOISY, PLAIN
from rich.console import Console
from samples import make_record

from membench.interface.registry import Registry
from membench.measure.metrics import METRICS
from membench.measure.size import COUNTS
from membench_leaderboard.columns import MODELS, Column, number, score_columns
from membench_leaderboard.data import as_csv, board_data
from membench_leaderboard.explain import explain, print_explanation
from membench_leaderboard.frame import entries, to_frame
from membench_leaderboard.markdown import rows_as_markdown, scores_as_markdown
from membench_leaderboard.page import page
from membench_leaderboard.rows import summarise
from membench_leaderboard.terminal import boards, score_boards
from membench_leaderboard.words import METRIC

DOCS = (Path(__file__).parents[2] / "docs" / "leaderboard.md").read_text("utf-8")
CONSTRUCT = {"name": "construct", "version": 1, "config": {}, "label": ""}
TASKS = {"accuracy": (PLAIN, list(BOUNDS)), "kl": (NOISY, [*BOUNDS, BAYES])}


def records(by: str) -> list[Any]:
    """One model, of which everything is known; and the construction that its oracle is."""
    task, bounds = TASKS[by]
    support = {"name": "support", "quantity": "associations", "direction": "upper", "value": 2500.0}
    known: dict[str, Any] = {
        "architecture": {"name": "aot", "config": {"d": 3}, "label": "d=3"},
        "task": task,
        "bounds": [*bounds, support],
        "size": {
            "parameters": 3000,
            "without_embeddings": 1500,
            "buffers": 7,
            "identifiable": 2000,
            "storage_bits": 96224,
            "learned_bits": 96000,
            "active": 800,
            "state": 40,
            "flops": 5600,
            "code_bytes": 2000,
        },
        "run": {"tuned": {"shapes": 30}, "cpu_seconds": 3.5, "probe_cpu_seconds": 4.0},
    }
    metrics = {"kl": 0.125, "excess_kl": 0.0625, "associations": 2490.0, "bits": 9000.0, "bits_per_parameter": 3.0}
    measured = [
        make_record(**known, seed=seed, metrics={"accuracy": 0.99 + seed / 100, **metrics}) for seed in range(2)
    ]
    more = make_record(**{**known, "size": {"parameters": 9000, "without_embeddings": 8000, "buffers": 0}}, id="more",
                       metrics={"accuracy": 0.5, **metrics})  # fmt: skip
    oracle = make_record(
        **known, id="oracle", protocol=CONSTRUCT, trace={"construction": "convex-readout", "certified": 2500}
    )
    return [*measured, more, oracle]


def rows(by: str) -> Any:
    found = summarise(to_frame(records(by)))
    return found[found["protocol"] == "converged"]


def data(by: str) -> dict[str, Any]:
    return board_data(records(by), rows(by))


BOTH = [(by, kind) for by in ("accuracy", "kl") for kind in ("models", "scores")]


def columns(by: str, kind: str) -> tuple[Column, ...]:
    return MODELS if kind == "models" else score_columns(by)


def test_every_way_to_count_parameters_has_a_column() -> None:
    headers = {column.key: column.header for column in MODELS}
    for count in COUNTS.values():
        assert headers[count.field] == count.header


@pytest.mark.parametrize(("by", "kind"), BOTH)
def test_a_terminal_shows_each_header_where_it_belongs(by: str, kind: str) -> None:
    (table,) = (boards if kind == "models" else score_boards)(rows(by), width=300)
    shown = {str(column.header) for column in table.columns}
    wanted = {column.key: column.lines for column in columns(by, kind) if by in column.terminal}
    wanted["area" if kind == "scores" else by] = f"{'area' if kind == 'scores' else METRIC[by]}\ninterval"
    wanted |= {"parameters": "params\nw/o emb."} if kind == "models" else {}
    wanted |= {column.name: column.lines for column in columns(by, kind) if column.budget}
    assert shown == set(wanted.values())


@pytest.mark.parametrize(("by", "kind"), BOTH)
def test_markdown_shows_each_header_where_it_belongs(by: str, kind: str) -> None:
    text = (rows_as_markdown if kind == "models" else scores_as_markdown)(rows(by))
    shown = {cell.strip() for cell in text.splitlines()[2].split("|")}
    wanted = {column.header for column in columns(by, kind) if by in column.markdown}
    assert shown == {*wanted, "95 % interval", ""}


@pytest.mark.parametrize(("by", "kind"), BOTH)
def test_the_page_shows_each_header_where_it_belongs_and_says_what_it_means(by: str, kind: str) -> None:
    text = page(data(by))
    (head,) = re.findall(rf'<table class="{"rows" if kind == "models" else "scores"}">.*?</thead>', text, re.S)
    for column in columns(by, kind):
        shown = f'data-key="{column.name}"' in head
        assert shown == (by in column.page), column.key
        assert not shown or f'<div data-key="{column.name}"><dt>' in text


@pytest.mark.parametrize(("by", "kind"), BOTH)
def test_json_and_csv_have_exactly_the_fields_that_are_data(by: str, kind: str) -> None:
    wanted = [column.key for column in columns(by, kind) if column.data]
    (table,) = data(by)["tables"]
    for row in table["rows" if kind == "models" else "scores"]:
        assert [key for key in row if key != "command"] == wanted
    if kind == "models":
        assert next(csv.reader(io.StringIO(as_csv(rows(by))))) == wanted


@pytest.mark.parametrize("kind", ["models", "scores"])
def test_an_explanation_has_every_number_with_its_meaning(kind: str) -> None:
    story = explain(entries(records("kl")), rows("kl"), "abc" if kind == "models" else "aot", Registry())
    console = Console(file=io.StringIO(), width=400)
    print_explanation(story, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for column in columns("kl", kind):
        if column.form:
            assert re.search(rf"^{re.escape(column.header)} .*\d.*{re.escape(column.meaning)}", text, re.M), column.key


@pytest.mark.parametrize(("by", "kind"), BOTH)
def test_columns_are_told_apart_and_explained(by: str, kind: str) -> None:
    names = [column.name for column in columns(by, kind)]
    assert len(names) == len(set(names))
    assert all(column.meaning.endswith(".") for column in columns(by, kind))
    for column in columns(by, kind):
        assert column.better == METRICS[column.key].sign if column.key in METRICS and column.form else True


def test_each_way_to_count_has_its_number() -> None:
    row = data("accuracy")["tables"][0]["rows"][0]
    bits, load = (next(column for column in MODELS if column.key == key) for key in ("bits_per_parameter", "load"))
    assert [bits.text(row, count) for count in COUNTS] == ["3.00", "6.00"]
    assert load.value(row, "without-embeddings") == pytest.approx(2 * row["load"])
    assert bits.value({**row, "without_embeddings": 0}, "without-embeddings") is None


def test_what_is_not_known_is_a_dash() -> None:
    assert [number(value) for value in (None, float("nan"), float("inf"), 0.5)] == ["-", "-", "-", "0.5000"]


def test_the_docs_explain_every_column() -> None:
    for column in dict.fromkeys((*MODELS, *score_columns("accuracy"), *score_columns("kl"))):
        if column.data:
            name = f"`{column.key}`" + (f" ({column.header})" if column.header not in ("", column.key) else "")
            assert f"| {name} | {column.meaning} |" in DOCS, column.key
