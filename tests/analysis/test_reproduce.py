"""`membench reproduce` and `membench plot`, from a file to figures, and what they say of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from samples import make_record

from membench.records.record import Record

Membench = Callable[..., CompletedProcess[str]]
EXPERIMENT = """
title = "Small models"
[claim]
text = "Accuracy grows linearly with the number of heads."
law = "linear"
[figure]
x = "H"
by = "d"
laws = ["linear"]
[[series]]
name = "attention"
model = "aot"
task = "bigram"
M = { d = [2, 3], H = [1, 2, 3] }
T = { N = 6 }
[protocol.quick]
seeds = 2
P = { steps = 20 }
"""


def test_an_experiment_of_ones_own_from_trials_to_figure_and_verdict(membench: Membench, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(EXPERIMENT, encoding="utf-8")
    first = membench("reproduce", "mine.toml")
    assert first.returncode == 0, first.stderr
    assert "Claim: Accuracy grows linearly with the number of heads." in first.stdout
    assert ("holds" in first.stdout) or ("undecided" in first.stdout)
    for suffix in ("png", "svg", "csv"):
        assert (tmp_path / "figures" / f"mine-quick.{suffix}").stat().st_size > 500
    again = membench("reproduce", "mine.toml", "--json")
    (result,) = json.loads(again.stdout)
    assert len(result["points"]) == 6
    assert {fit["law"] for fit in result["fits"]} == {"linear"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["e7"], "unknown experiment 'e7'"),
        (["e1", "--quick", "--protocol", "converged"], "--quick has a protocol of its own"),
        (["e1", "--protocol", "convergd"], "did you mean 'converged'"),
        (["all", "--overlay", "x.csv"], "--overlay draws on one figure"),
        (["e1", "--overlay", "none.csv"], "cannot read overlay 'none.csv'"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(membench: Membench, words: list[str], sentence: str) -> None:
    found = membench("reproduce", *words)
    assert found.returncode == 2
    assert sentence in found.stderr
    assert "Traceback" not in found.stderr


def write(folder: Path, records: list[Record]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, record in enumerate(records):
        (folder / f"{number}.json").write_text(record.to_json(), encoding="utf-8")


def line(H: int, seed: int) -> Record:
    architecture = {"name": "aot", "config": {"d": 10, "H": H}}
    metrics: dict[str, float | None] = {"accuracy": 0.1 + 0.02 * H + 0.001 * seed}
    return make_record(id=f"h{H}", seed=seed, architecture=architecture, metrics=metrics)


def test_plot_draws_any_column_and_fits_it(membench: Membench, tmp_path: Path) -> None:
    write(tmp_path / "results", [line(H, seed) for H in range(1, 6) for seed in range(3)])
    (tmp_path / "mine.csv").write_text("H,accuracy\n1,0.2\n", encoding="utf-8")
    found = membench("plot", "--x", "H", "--by", "d", "--fit", "linear", "--overlay", "mine.csv", "results")
    assert found.returncode == 0, found.stderr
    assert "d=10: slope 0.02 per H" in found.stdout
    assert {path.name for path in tmp_path.glob("plot.*")} == {"plot.png", "plot.svg", "plot.csv"}
    assert len((tmp_path / "plot.csv").read_text("utf-8").splitlines()) == 16


def test_plot_says_what_is_wrong(membench: Membench, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "results", [line(H, seed) for H in (1, 2) for seed in range(3)])
    (tmp_path / "mine.csv").write_text("H,acc\n1,0.2\n", encoding="utf-8")
    cases = {
        ("--x", "H", "empty"): "no finished records to plot",
        ("--x", "heads", "results"): "unknown column 'heads'",
        ("--x", "H", "--fit", "cubic", "results"): "unknown law 'cubic'",
        ("--x", "H", "--fit", "quadratic", "results"): "a quadratic needs at least 3 distinct x",
        ("--x", "H", "--overlay", "mine.csv", "results"): "has no column 'accuracy'",
        ("--x", "H", "--out", "plot.gif", "results"): "cannot draw to 'plot.gif'",
    }
    for words, sentence in cases.items():
        found = membench("plot", *words)
        assert (found.returncode, sentence in found.stderr) == (2, True), found.stderr
