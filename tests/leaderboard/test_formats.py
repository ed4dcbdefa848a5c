"""Formats: each makes text of a board, and prints nothing itself."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from samples import make_record

from membench.interface.registry import Registry
from membench_leaderboard.formats import EXPLANATIONS, FORMATS, Board
from membench_leaderboard.frame import entries, to_frame
from membench_leaderboard.rows import summarise


def board(models: bool = True) -> Board:
    records = [make_record(id="abc", metrics={"accuracy": 0.5, "bits": 7.0})]
    console = Console(file=io.StringIO(), width=100)
    return Board(entries(records), summarise(to_frame(records)), models, "all", Registry, console)


@pytest.mark.parametrize("models", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_returns_text_and_prints_nothing(name: str, models: bool, capsys: pytest.CaptureFixture[str]) -> None:
    shown = board(models)
    text = FORMATS[name](shown)
    assert "aot" in text
    assert "0.5" in text
    assert capsys.readouterr().out == shown.console.file.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_an_explanation_is_text_too(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXPLANATIONS[name](board(), "abc")
    assert "abc" in text
    assert name != "json" or json.loads(text)
    assert capsys.readouterr().out == ""
