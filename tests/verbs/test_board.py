"""Filling the board: what is missing, what cannot be had, and what a person may get wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from samples import make_record

from membench.cli import cli
from membench.errors import MembenchError
from membench.interface.registry import Registry
from membench_leaderboard import missing
from membench_leaderboard.missing import places
from membench_leaderboard.tracks import ACCURACY, CONSTRUCTIONS, TrackTask


def run(*words: object) -> Any:
    return CliRunner().invoke(cli, ["board", "fill", *map(str, words)], env={"COLUMNS": "300"})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--track", "speed"), "unknown track 'speed'"),
        (("--hours", "-1"), "--hours -1: give a number of hours of at least 0"),
        (("--hours", "nan"), "--hours nan: give a number of hours of at least 0"),
        (("--models", "nobodys"), "unknown architecture 'nobodys'"),
        (("--plugin", "missing.py"), "does not exist"),
    ],
)
def test_bad_options_get_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    done = run("--out", tmp_path / "board", *words)
    assert isinstance(done.exception, MembenchError), done.output
    assert done.exception.exit_code == 2
    assert sentence in str(done.exception)
    assert not (tmp_path / "board").exists()


def test_sizes_that_an_architecture_cannot_have_are_named_with_a_reason(tmp_path: Path) -> None:
    done = run("--models", "lookup", "--track", "accuracy", "--hours", 0, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["ran"], told["left"]) == (0, [])
    assert any(one.startswith("accuracy: lookup on bigram, 500, 834, 1.4k") for one in told["unreachable"])
    shown = run("--models", "lookup", "--track", "accuracy", "--hours", 0, "--out", tmp_path)
    assert "cannot be filled: accuracy: lookup on bigram" in shown.output


def test_an_architecture_without_constructions_is_no_part_of_that_track() -> None:
    registry = Registry()
    found, reasons = places(registry, [registry.architecture("lstm")], [CONSTRUCTIONS])
    assert (found, reasons) == ([], [])


def test_a_place_is_of_the_size_that_it_is_for() -> None:
    registry = Registry()
    found, _ = places(registry, [registry.architecture("aot")], [ACCURACY])
    assert len(found) > 20
    for place in found:
        assert ACCURACY.slot(place.parameters) == ACCURACY.sizes.index(place.size)


def test_quick_rows_fill_no_place(tmp_path: Path) -> None:
    words = ("--models", "lstm", "--track", "accuracy", "--hours", 0, "--out", tmp_path, "--no-published", "--json")
    before = json.loads(run(*words).stdout)
    made = CliRunner().invoke(
        cli, ["run", "--model", "lstm", "--task", "bigram", "-T", "N=6", "--protocol", "quick", "--seeds", "1",
              "--executor", "inline", "--out", str(tmp_path)]
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    after = json.loads(run(*words).stdout)
    assert sum(one["places"] for one in after["left"]) == sum(one["places"] for one in before["left"]) > 0


def test_a_construction_that_is_for_other_facts_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(CONSTRUCTIONS, tasks=[TrackTask("ngram", "ngram", "N=4 S=3 T0=8 zipf=0")], sizes=(40,))
    monkeypatch.setattr(missing, "TRACKS", {"constructions": one})
    done = run("--models", "pair-mlp", "--out", tmp_path / "board", "--jobs", 1, "--json", "--no-published")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["ran"], told["failed"]) == (5, 0)
    assert any("the construction is for pairs" in reason for reason in told["unreachable"])


def test_what_a_place_takes_is_learned_from_all_time_and_all_work() -> None:
    """A tiny trial, most of whose time is not training, hardly changes what a large one is expected to take."""
    registry = Registry()
    (place,) = [one for one in places(registry, [registry.architecture("aot")], [ACCURACY])[0]
                if (one.task.name, one.size) == ("bigram", ACCURACY.sizes[4])]  # fmt: skip
    large, tiny = ({"contexts": facts, "answers": 64} for facts in (1291, 8))
    rates = missing.Rates()
    protocol = {"name": ACCURACY.protocol, "version": 2, "config": {}, "label": ACCURACY.protocol_config}
    record = make_record(protocol=protocol)
    parts = {
        "architecture": {**record.architecture, "name": "aot"},
        "size": {**record.size, "parameters": place.parameters},
    }
    rates.learn([replace(record, task={**record.task, **large}, run={"cpu_seconds": 10.0}, **parts)])
    before = place.seconds({}, rates)
    rates.learn([replace(record, task={**record.task, **tiny}, run={"cpu_seconds": 0.5}, **parts)])
    assert before == pytest.approx(50.0)
    assert before < place.seconds({}, rates) < 1.1 * before
