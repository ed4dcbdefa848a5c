"""Experiments as TOML: the built-in ones make sense, and mistakes in a file are named with file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from membench.engine.protocols.protocol import PROTOCOLS
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan import experiment
from membench.plan.experiment import load, names, parse

REGISTRY = Registry()
SMALL = """
title = "Small"
[figure]
x = "H"
[[series]]
name = "attention"
model = "aot"
task = "bigram"
M = { d = 2, H = [1, 2] }
T = { N = 5 }
[protocol.quick]
seeds = 2
P = { steps = 7 }
"""


def test_every_file_is_an_experiment_and_those_of_the_paper_come_before_their_variants() -> None:
    files = (Path(experiment.__file__).parent / "experiments").glob("*.toml")
    assert sorted(names()) == sorted(path.stem for path in files)
    main = [name for name in names() if "-" not in name]
    assert names()[: len(main)] == main == sorted(main)
    assert {f"e{number}" for number in range(1, 7)} <= set(main)


PAPER = [name for name in names() if name.startswith("e")]


@pytest.mark.parametrize("name", [name for name in names() if name not in PAPER])
def test_those_of_other_papers_are_for_capacity_and_come_with_published_numbers(name: str) -> None:
    loaded = load(name)
    assert loaded.protocol == "converged"
    assert loaded.question
    assert loaded.setting
    assert loaded.published
    y = "facts" if loaded.figure.facts_at is not None else loaded.figure.y
    assert all({loaded.figure.x, y, *loaded.figure.by} == set(point) for point in loaded.published.points)
    sizes = {protocol: len(loaded.trials(REGISTRY, protocol)) for protocol in ("converged", "quick")}
    assert sizes["quick"] <= 30
    assert sizes["quick"] < sizes["converged"]


@pytest.mark.parametrize("name", PAPER)
def test_each_can_be_planned_as_published_for_capacity_and_quickly(name: str) -> None:
    loaded = load(name)
    assert loaded.protocol == "dana2024"
    assert set(loaded.protocols) <= set(PROTOCOLS)
    sizes = {protocol: len(loaded.trials(REGISTRY, protocol)) for protocol in ("dana2024", "converged", "quick")}
    assert sizes["quick"] <= 60
    assert sizes["quick"] < sizes["converged"] <= sizes["dana2024"]


def test_the_first_experiment_is_the_published_grid() -> None:
    pairs = load("e1").trials(REGISTRY, "dana2024")
    assert len(pairs) == 385
    assert {(trial.config.d, trial.config.d_h) for _, trial in pairs} == {(d, d) for d in range(3, 14)}
    assert sorted({trial.config.H for _, trial in pairs}) == [1, 6, 11, 16, 21, 26, 31]
    assert {trial.task_config.T0 for _, trial in pairs} == {2500}


def test_the_fifth_gives_the_mlp_as_many_neurons_as_published() -> None:
    pairs = load("e5").trials(REGISTRY, "dana2024")
    widths = {(trial.config.d, trial.config.w) for series, trial in pairs if series.name == "MLP"}
    assert widths == {(d, 2 * d * (H - 1)) for d in (7, 10, 13) for H in range(1, 32, 5)}
    rates = {(series.name, trial.protocol_config.lr_end) for series, trial in pairs}
    assert rates == {("attention", 5e-4), ("MLP", 1e-4)}
    assert {trial.protocol_config.batch for _, trial in pairs} == {1024}


def test_a_protocol_changes_grid_seeds_and_options() -> None:
    small = parse("small", SMALL, "small")
    trials = [trial for _, trial in small.trials(REGISTRY, "quick")]
    assert [(trial.config.H, trial.seed) for trial in trials] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert {trial.protocol_config.steps for trial in trials} == {7}
    assert {trial.seed for _, trial in small.trials(REGISTRY, "quick", seeds=3)} == {0, 1, 2}
    assert {trial.seed for _, trial in small.trials(REGISTRY, "construct")} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('x = "H"', 'xx = "H"'), r"'x' is missing"),
        (('x = "H"', 'x = "H"\nlaw = "linear"'), r"unknown key in 'mine.toml', \[figure\]: 'law'; did you mean 'laws'"),
        (('title = "Small"', "title = 3"), r"'mine.toml': 'title' is 3; it must be a text"),
        (("seeds = 2", 'seeds = "two"'), r"\[protocol.quick\]: 'seeds' is 'two'; it must be a whole number"),
        (("seeds = 2", "seeds = 0"), r"'seeds' is 0"),
        (("H = [1, 2]", "H = []"), r"\[\[series\]\] 1: 'M.H' is \[\], an empty grid"),
        (('model = "aot"', 'model = "aott"'), r"experiment 'mine', series 'attention': unknown architecture 'aott'"),
        (("d = 2,", "dd = 2,"), r"unknown option of aot 'dd'"),
        (('model = "aot"', 'model = "aot"\nmodels = "aot"'), r"unknown key .* 'models'; did you mean 'model'"),
        (("[figure]", "[figure"), r"is not TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL.replace(*change), encoding="utf-8")
    with pytest.raises(UsageError, match=words.replace("'mine.toml'", f"'{path}'")):
        load(str(path)).trials(REGISTRY, "quick")


def test_an_experiment_without_series_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'series' is missing"):
        parse("none", SMALL.partition("[[series]]")[0], "none")


def test_an_unknown_experiment_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"unknown experiment 'e1-deep'; did you mean 'e1-depth'"):
        load("e1-deep")
    with pytest.raises(UsageError, match=r"cannot read experiment 'missing.toml'"):
        load("missing.toml")
