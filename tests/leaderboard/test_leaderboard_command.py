"""`membench leaderboard` without a process of its own: what it shows, and what it says when it cannot."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from samples import make_record

from membench.commands.leaderboard import FORMATS, leaderboard
from membench.errors import UsageError
from membench.records.store import Entry
from membench_leaderboard import gather as sources

NGRAM = {"name": "ngram", "version": 1, "config": {"N": 9}, "label": "N=9 S=3"}


def model(name: str, id: str, parameters: int, accuracy: float, **more: Any) -> Any:
    return make_record(
        id=id,
        architecture={"name": name, "config": {}, "label": f"of {parameters}"},
        size={"parameters": parameters, "without_embeddings": parameters // 2},
        metrics={"accuracy": accuracy},
        **more,
    )


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """A published board of the test's own."""
    board = [
        Entry(model("aot", "p1", 5_000, 0.75), "published/bigram.jsonl", published=True),
        Entry(model("aot", "p2", 2_000, 0.5, task=NGRAM), "published/ngram.jsonl", published=True),
    ]
    monkeypatch.setattr(sources, "published_entries", lambda: list(board))
    return board


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for record in (model("mine", "m1", 9_000, 0.9), model("mine", "m2", 1_500, 0.25)):
        (tmp_path / f"{record.id}.json").write_text(record.to_json())
    return tmp_path


def call(*words: object) -> Result:
    return CliRunner().invoke(leaderboard, [str(word) for word in words], terminal_width=100)


def fault(*words: object) -> str:
    error = call(*words).exception
    assert isinstance(error, UsageError), error
    return str(error)


def board(*words: object) -> dict[str, Any]:
    return json.loads(call(*words, "--json").stdout)  # type: ignore[no-any-return]


def ids(data: dict[str, Any]) -> list[str]:
    return [row["id"] for table in data["tables"] for row in table["rows"]]


def test_without_folders_it_is_the_published_board() -> None:
    assert ids(board()) == ["p1", "p2"]
    shown = call().stdout
    assert "bigram v1" in shown
    assert "ngram v1" in shown


def test_with_folders_it_is_yours_among_the_published_of_the_same_tables(folder: Path) -> None:
    assert ids(board(folder)) == ["m1", "p1", "m2"]
    assert ids(board(folder, "--no-published")) == ["m1", "m2"]
    words = " ".join(call(folder).stdout.split())
    assert "mine 0.250" in words
    assert "yours" in words
    assert "all rows: trained, self-reported, membench unknown" in words


def test_an_empty_board_says_what_to_run_first(published: list[Entry], tmp_path: Path) -> None:
    first = "membench run --model aot --task bigram"
    assert first in fault(tmp_path)
    assert "no finished trials below" in fault(tmp_path)
    assert "name a folder" in fault("--no-published")
    published.clear()
    assert "no records came with this membench" in fault()
    assert first in fault()


def test_a_budget_shows_the_models_that_fit_it(folder: Path) -> None:
    assert ids(board(folder, "--budget", "5k")) == ["p1", "m2"]
    assert ids(board(folder, "--budget", "5k", "--count", "without-embeddings")) == ["m1", "p1", "m2"]
    assert "of 1500" in call(folder, "--budget", "5k").stdout
    assert "the smallest is mine (of 1500) with 1,500 parameters" in fault(folder, "--budget", "1000")
    fewest = fault(folder, "--budget", "500", "--count", "without-embeddings")
    assert "the smallest is mine (of 1500) with 750 parameters without embeddings" in fewest
    assert "such as 3k, 10000 or 1.5M" in fault(folder, "--budget", "ten")


def test_scores_are_the_default_and_rows_show_every_model(folder: Path) -> None:
    assert "of 9000" not in call(folder).stdout
    assert "of 9000" in call(folder, "--rows").stdout
    assert "accuracy at 3k" in call(folder, "--format", "markdown").stdout
    assert "of 9000" in call(folder, "--format", "markdown", "--rows").stdout


def test_tables_are_chosen_by_task_options_and_protocol() -> None:
    assert ids(board("--task", "ngram")) == ["p2"]
    assert ids(board("-T", "N=9")) == ["p2"]
    assert "did you mean 'ngram'?" in fault("--task", "ngrams")
    assert "there are: converged" in fault("--protocol", "dana")
    assert "no table matches bigram, N=9; there are: bigram (N=50)" in fault("--task", "bigram", "-T", "N=9")


def test_every_format_has_every_row(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(call(folder, "--format", "csv").stdout)))
    assert [row["id"] for row in rows] == ["m1", "p1", "m2"]
    assert ids(json.loads(call(folder, "--format", "json").stdout)) == ["m1", "p1", "m2"]
    page = call(folder, "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    assert "m1" in page


def test_each_format_has_a_writer_of_its_own_and_no_other_name_has_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = next(one for one in leaderboard.params if one.name == "form").type
    assert list(offered.choices) == list(FORMATS)  # type: ignore[attr-defined]
    shown = {form: call(folder, "--format", form).stdout for form in FORMATS}
    assert len(set(shown.values())) == len(FORMATS)
    assert shown["table"] == call(folder).stdout
    refused = call(folder, "--format", "yaml")
    assert (refused.exit_code, refused.stdout) == (2, "")
    monkeypatch.delitem(FORMATS, "markdown")  # offered, and yet without a writer
    assert isinstance(call(folder, "--format", "markdown").exception, KeyError)


def test_an_explanation_has_two_formats() -> None:
    assert "--explain --format csv: an explanation is printed as table or json" in fault(
        "--explain", "x", "--format", "csv"
    )


def test_a_row_is_explained_for_people_and_for_machines(folder: Path) -> None:
    assert "m2.json" in call(folder, "--explain", "m2").stdout
    assert json.loads(call(folder, "--explain", "1", "--rows", "--json").stdout)["id"] == "m1"
    assert "could mean 2 rows" in fault("--explain", "aot")
    assert "published" in call("--explain", "aot", "--task", "ngram").stdout


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_is_written_beside_the_table(folder: Path, suffix: str) -> None:
    done = call(folder, "--plot", folder / f"board.{suffix}")
    assert done.exit_code == 0
    assert (folder / f"board.{suffix}").stat().st_size > 1000
    assert "mine" in done.stdout


def test_a_plot_of_several_tables_names_them(tmp_path: Path) -> None:
    assert "ngram (N=9 S=3)" in fault("--plot", tmp_path / "board.png")


def test_records_that_contradict_each_other_are_named(folder: Path) -> None:
    (folder / "other.json").write_text(model("mine", "m1", 9_000, 0.1).to_json())
    assert "m1.json' and '" in fault(folder)
    assert "other.json' are records of one trial" in fault(folder)
