"""`membench bounds`, `membench floor` and constructions, as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

BOUNDS = ("bounds", "--model", "aot", "--task", "bigram", "-T", "N=50", "-M", "d=10", "-M", "d_h=10")


def test_bounds_are_shown_with_values_or_reasons(membench: Any) -> None:
    done = membench(*BOUNDS, "-M", "H=20", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    assert "associations >= 210" in done.stdout
    assert "accuracy >= 0.10232" in done.stdout
    assert "vacuous" in done.stdout
    assert "order only" in done.stdout
    assert "does not apply" in done.stdout


def test_bounds_as_json_carry_formula_and_reference(membench: Any) -> None:
    (point,) = json.loads(membench(*BOUNDS, "-M", "H=20", "--json").stdout)
    found = {bound["name"]: bound for bound in point["bounds"]}
    assert found["corollary-2"]["value"] == pytest.approx(0.10232)
    assert found["corollary-2"]["claim"] == "guarantee"
    assert all(bound["reference"] and bound["formula"] for bound in found.values())


def test_bounds_over_a_grid_as_table_markdown_and_plot(membench: Any, tmp_path: Path) -> None:
    table = membench(*BOUNDS, "-M", "H=1,2,4", "--plot", "b.png")
    assert all(word in table.stdout for word in ("H=1", "H=4", "theorem-1"))
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    markdown = membench(*BOUNDS, "-M", "H=3", "--markdown").stdout
    assert "| theorem-1" in markdown
    one = membench(*BOUNDS, "-M", "H=3", "--plot", "b.png")
    assert one.returncode == 2
    assert "needs a grid" in one.stderr


def test_an_architecture_without_bounds_still_has_those_of_every_model(membench: Any) -> None:
    done = membench("bounds", "--model", "lookup", "--task", "bigram", "-T", "N=5")
    assert done.returncode == 0
    assert "no bound is specific to 'lookup'" in done.stderr
    assert "zero-head" in done.stdout


def test_a_floor_is_an_interval_that_falls_with_d(membench: Any, tmp_path: Path) -> None:
    words = ("floor", "--task", "low-entropy", "-T", "N=5", "-M", "d=1:4", "--starts", "3")
    found = json.loads(membench(*words, "--json").stdout)
    assert [one["d"] for one in found] == [1, 2, 3, 4]
    assert all(0 <= one["lower"] <= one["upper"] <= one["worst"] for one in found)
    uppers = [one["upper"] for one in found]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] < 1e-10  # d = N - 1
    shown = membench(*words, "--plot", "f.svg")
    assert "best found" in shown.stdout
    assert (tmp_path / "f.svg").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["floor", "--task", "low-entropy", "-T", "N=5,6"], "a floor needs one task config, not 2"),
        (["floor", "--task", "low-entropy", "-M", "d=0"], "d=0: a whole number of at least 1"),
        (["floor", "--task", "low-entropy", "-M", "H=3"], "the only option is d"),
        (["floor", "--task", "low-entropi"], "did you mean 'low-entropy'?"),
        (["bounds", "--model", "aott", "--task", "bigram"], "did you mean 'aot'?"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(membench: Any, words: list[str], sentence: str) -> None:
    done = membench(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_the_theorem_executed(membench: Any) -> None:
    words = ("run", "--model", "aot", "--task", "bigram", "--protocol", "construct", "-T", "T0=210", "--seeds", "2")
    (row,) = json.loads(membench(*words, "--json").stdout)["rows"]
    assert row["accuracy"] == 1
    assert "constructed, not trained" in " ".join(membench(*words).stdout.split())


def test_a_run_can_report_its_excess_over_the_floor(membench: Any, tmp_path: Path) -> None:
    options = ("-T", "N=6", "-M", "d=2", "-M", "H=1", "--protocol", "quick", "--seeds", "1")
    done = membench("run", "--model", "aot", "--task", "low-entropy", *options, "--floor", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    (record,) = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("*.json")]
    interval = record["trace"]["floor"]
    assert interval["d"] == 2
    assert row["excess_kl"] == pytest.approx(record["metrics"]["kl"] - interval["upper"])
    assert row["identifiable"] < row["parameters"]
    refused = membench("run", "--model", "lookup", "--task", "low-entropy", "--floor")
    assert refused.returncode == 2
    assert "declares no bottleneck" in refused.stderr
