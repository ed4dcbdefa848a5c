from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from rich.console import Console
from samples import make_record

from membench.errors import UsageError
from membench_leaderboard.frame import to_frame
from membench_leaderboard.plot import draw
from membench_leaderboard.score import summarise
from membench_leaderboard.table import as_text, boards, rows_as_json


def rows(*records: Any) -> Any:
    return summarise(to_frame(records or [make_record(), make_record(seed=1)]))


def shown(found: Any, width: int = 80, **more: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    for board in boards(found, width=width, **more):
        console.print(board)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


QUICK = {"name": "quick", "version": 1, "config": {}, "label": ""}


def test_a_table_fits_80_columns_and_shows_everything() -> None:
    text = shown(rows())
    assert max(map(len, text.splitlines())) <= 80
    for part in ("aot", "d=10", "100", "50", "0.5000", "0.100", "0.070", "0.020", "bigram v1", "converged v1"):
        assert part in text


def test_a_wide_terminal_shows_more() -> None:
    sizes, metrics = {"parameters": 100, "identifiable": 77}, {"accuracy": 0.5, "excess_kl": 0.125}
    found = rows(make_record(size=sizes, metrics=metrics))
    assert "77" in shown(found, width=140)
    assert "0.1250" in shown(found, width=140)
    assert "0.1250" not in shown(found, width=80)


def test_only_like_shares_a_table() -> None:
    other = {"name": "bigram", "version": 2, "config": {"N": 50}, "label": "N=50"}
    assert len(list(boards(rows(make_record(), make_record(id="x", task=other))))) == 2


def test_quick_runs_are_shown_but_not_ranked() -> None:
    assert "not ranked" in " ".join(shown(rows(make_record(protocol=QUICK))).split())
    assert rows_as_json(rows(make_record(protocol=QUICK)))[0]["rank"] is None


def test_markup_in_a_name_is_shown_as_text() -> None:
    text = shown(rows(make_record(architecture={"name": "[red]x[/red]", "config": {}, "label": "[bold]"})))
    assert "[red]x[/red]" in text
    assert "[bold]" in text


def test_markdown_and_csv_carry_the_same_rows() -> None:
    markdown = as_text(rows(), "markdown")
    assert "| aot" in markdown
    assert markdown.startswith("### bigram v1 (N=50), protocol converged v1")
    (row,) = csv.DictReader(io.StringIO(as_text(rows(), "csv")))
    assert (row["architecture"], float(row["accuracy"])) == ("aot", 0.5)


def test_a_plot_is_written_in_each_format(tmp_path: Any) -> None:
    found = rows(make_record(), make_record(id="b", size={"parameters": 400}), make_record(id="c", seed=1))
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        assert draw(found, tmp_path / f"board{suffix}").read_bytes().startswith(start)


def test_a_plot_needs_one_table_and_a_known_format(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"ends in .png, .svg, .pdf"):
        draw(rows(), tmp_path / "board.gif")
    with pytest.raises(UsageError, match="choose with --task and --protocol"):
        draw(rows(make_record(), make_record(id="q", protocol=QUICK)), tmp_path / "board.png")
    with pytest.raises(UsageError, match="cannot write"):
        draw(rows(), tmp_path / "nowhere" / "board.png")
