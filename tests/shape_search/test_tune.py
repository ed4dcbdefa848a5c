"""The search for a shape, as a call and as a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import membench
from membench.cli import cli
from membench.engine.protocols.protocol import PROBE_SEEDS
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan.budget import Budget
from membench.plan.request import Request, to_tune
from membench.records.store import Store, read

SMALL: dict[str, Any] = {"T": {"N": 6}, "P": {"steps": 20, "rounds": 1, "lr": 0.01, "beta1": 0.9, "beta2": 0.9}}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("membench.shape_search.search.SHORT", 5)
    monkeypatch.setattr("membench.shape_search.search.LONG", 20)


def tune(folder: Path, **more: Any) -> Any:
    given: dict[str, Any] = {
        "M": {"layers": 1},
        "seeds": 2,
        "shapes": 3,
        "executor": "inline",
        "progress": False,
        **SMALL,
        **more,
    }
    return membench.tune(
        "mlp-transformer", "bigram", 120, out=folder / "results", search_out=folder / "tuning", **given
    )  # fmt: skip


@pytest.mark.usefixtures("short")
def test_the_best_shape_is_measured_and_its_records_say_how_it_was_found(tmp_path: Path) -> None:
    tuned = tune(tmp_path)
    (search,) = tuned.searches
    reached = {one.candidate: one for one in search.tried}
    assert all(one.steps == (5, 20) for one in search.tried[:1])
    assert reached[search.best].scores[-1] == max(one.scores[-1] for one in search.tried if len(one.steps) == 2)
    assert {record.architecture["config"]["d"] for record in tuned.results.records} == {search.best.config.d}
    for record in tuned.results.records:
        assert record.run["tuned"] == {
            "budget": 120, "count": "all", "shapes": len(search.tried), "trainings": search.trainings,
            "fixed": {"layers": 1},
        }  # fmt: skip
        assert record.size["parameters"] <= 120


@pytest.mark.usefixtures("short")
def test_no_seed_of_a_trial_is_used_to_find_the_shape_and_nothing_runs_twice(tmp_path: Path) -> None:
    tune(tmp_path)
    search = [read(path).record for path in Store(tmp_path / "tuning").files()]
    assert {record.seed for record in search} == set(PROBE_SEEDS)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    again = tune(tmp_path)
    assert again.results.ran == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


@pytest.mark.usefixtures("short")
def test_a_record_that_was_there_before_is_told_and_keeps_its_numbers(tmp_path: Path) -> None:
    best = tune(tmp_path).searches[0].best.config
    other = tmp_path / "other"
    options = {name: getattr(best, name) for name in ("d", "w", "layers", "bias")}
    membench.run("mlp-transformer", "bigram", M=options, seeds=2, out=other / "results", executor="inline",
                 progress=False, **SMALL)  # fmt: skip
    (other / "tuning").symlink_to(tmp_path / "tuning")
    tuned = tune(other)
    assert tuned.results.ran == 0
    assert all("tuned" in record.run for record in tuned.results.records)


def test_one_shape_needs_no_search(tmp_path: Path) -> None:
    tuned = membench.tune("linear-memory", "bigram", 3, seeds=1, out=tmp_path / "r", search_out=tmp_path / "t",
                          executor="inline", progress=False, **SMALL)  # fmt: skip
    assert tuned.searches[0].best.config.d == 1
    assert tuned.searches[0].trainings == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"M": {"d": [3, 4]}}, "single value"),
        ({"M": {"width": 3}}, "width"),
        ({"shapes": 0}, "at least 1"),
        ({"M": {"d": 100}}, "no architecture fits the budget"),
    ],
)
def test_what_cannot_be_searched_is_said_before_anything_runs(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        tune(tmp_path, **more)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(("out", "search_out"), [("r", "r"), ("r", "r/tuning"), ("r/x", "r")])
def test_the_search_needs_a_folder_apart_from_the_results(tmp_path: Path, out: str, search_out: str) -> None:
    with pytest.raises(UsageError, match="apart from"):
        membench.tune("aot", "bigram", 500, out=tmp_path / out, search_out=tmp_path / search_out)


def test_an_option_of_one_architecture_leaves_the_others_free() -> None:
    request = Request(models=["aot,mlp-transformer"], tasks=["bigram"], budgets=[Budget(500)],
                      model_options=["aot.layers=1", "d=12", "aot.d_h=auto"])  # fmt: skip
    fixed = {architecture.name: own for architecture, *_, own in to_tune(Registry(), request)}
    assert fixed == {"aot": {"layers": 1, "d": 12}, "mlp-transformer": {"d": 12}}


def test_what_only_measuring_would_trip_over_is_said_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no bottleneck"):
        membench.tune("lookup", "bigram", "1M", floor=True, out=tmp_path / "r", search_out=tmp_path / "t")
    with pytest.raises(UsageError, match="lookup"):
        membench.tune("lookup", "bigram", "1M", protocol="construct", out=tmp_path / "r", search_out=tmp_path / "t")


@pytest.mark.usefixtures("short")
def test_the_command_prints_shapes_and_results(tmp_path: Path) -> None:
    words = ["tune", "--model", "mlp-transformer", "--task", "bigram", "-T", "N=6", "--budget", "120", "--shapes", "3",
             "--seeds", "1", "-M", "layers=1", "--protocol", "quick", "-P", "steps=5", "--executor", "inline",
             "--out", str(tmp_path / "r"), "--search-out", str(tmp_path / "t")]  # fmt: skip
    shown = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert "best: d=" in shown.stdout
    assert "shapes tried" in shown.stdout
    data = json.loads(CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).stdout)
    assert data["searches"][0]["best"]["layers"] == 1
    assert len(data["rows"]) == 1
