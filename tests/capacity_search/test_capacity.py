"""The search and the threshold on simulated models whose capacity is known; and the verb on real ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
import pytest

from membench.capacity_search.capacity import threshold_words
from membench.capacity_search.measurement import Measurement, summarise
from membench.capacity_search.search import Levels, Search
from membench.capacity_search.subject import Subject
from membench.capacity_search.threshold import crossing, peak, threshold
from membench.commands.capacity import parse_levels
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan.request import Request, plan

LEVELS = (1.0, 0.99)
Model = Callable[[int], list[Measurement]]


def simulated(capacity: float, width: float = 0.05, seed: int = 0, seeds: int = 5, parameters: int = 1000) -> Model:
    """Seeds whose own capacities are spread around a common one; bits peak a little above it."""
    random = np.random.default_rng(seed)

    def measure(value: int) -> list[Measurement]:
        load = 5 * value / parameters
        own = capacity * np.exp(width * random.logistic(size=seeds))
        accuracies = np.where(value <= own, 1.0, np.maximum(own / value, 0.1))
        bits = np.minimum(load, 5 * capacity / parameters * (1.2 - 0.1 * value / capacity))
        return [Measurement(value, i, value, load, float(a), float(bits)) for i, a in enumerate(accuracies)]

    return measure


def searched(model: Model, search: Search) -> list[Measurement]:
    done: list[Measurement] = []
    for _ in range(50):
        values = search.next_values(done)
        if not values:
            return done
        assert not set(values) & {one.value for one in done}, "nothing is trained twice"
        done += [one for value in values for one in model(value)]
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("capacity", [1.5, 7.5, 40.5, 400.5, 2000.5])
def test_a_sharp_threshold_is_found_within_the_resolution(capacity: float) -> None:
    done = searched(simulated(capacity, width=1e-6), Search(LEVELS, 50, 1, 2500))
    found = threshold(done, LEVELS, 1.0)
    assert found.status == "found"
    assert found.low <= capacity <= found.high
    assert found.facts == pytest.approx(capacity, rel=0.1, abs=0.5)
    assert len(summarise(done, LEVELS)) < 20


def test_the_true_threshold_lies_in_most_intervals() -> None:
    hits = 0
    for seed in range(30):
        done = searched(simulated(300, width=0.1, seed=seed), Search(LEVELS, 50, 1, 2500))
        found = threshold(done, LEVELS, 1.0)
        assert found.low < found.facts < found.high < 1.7 * found.low
        hits += found.low <= 300 <= found.high
    assert hits >= 25


def test_more_seeds_make_the_interval_narrower() -> None:
    few, many = (
        threshold(searched(simulated(300, 0.1, seeds=seeds), Search(LEVELS, 50, 1, 2500)), LEVELS, 1.0)
        for seeds in (3, 40)
    )
    assert math.log(many.high / many.low) < 0.6 * math.log(few.high / few.low)


def test_the_peak_lies_between_values_that_are_lower() -> None:
    done = searched(simulated(300), Search(LEVELS, 50, 1, 2500))
    found = peak(done)
    assert found is not None
    rows = summarise(done, LEVELS)
    place = [row.facts for row in rows].index(found.facts)
    assert 0 < place < len(rows) - 1
    assert found.bits == max(row.bits for row in rows) == pytest.approx(1.65, rel=0.1)


def test_a_support_that_is_wholly_memorised_gives_a_lower_end() -> None:
    done = searched(simulated(1e9), Search(LEVELS, 50, 1, 400))
    found = threshold(done, LEVELS, 1.0)
    assert (found.status, found.facts) == ("at least", 400)
    assert math.isnan(found.low)
    assert threshold_words(found).startswith("all right: at least 400 facts")


def test_a_model_that_memorises_nothing_says_so() -> None:
    done = searched(simulated(1e-9), Search(LEVELS, 50, 1, 400))
    found = threshold(done, LEVELS, 0.99)
    assert (found.status, found.facts) == ("below", 1)
    assert threshold_words(found) == "99 % right: not even 1 fact"


def test_a_lower_level_is_reached_with_more_facts() -> None:
    levels = (1.0, 0.8)
    done = searched(simulated(300, width=0.02), Search(levels, 50, 1, 2500))
    whole, part = (threshold(done, levels, level) for level in levels)
    assert whole.high < part.low
    assert part.facts == pytest.approx(300 / 0.8, rel=0.1)
    assert part.load == pytest.approx(5 * part.facts / 1000, rel=1e-6)


def test_the_search_is_the_same_from_the_same_records() -> None:
    search = Search(LEVELS, 50, 1, 2500)
    done = searched(simulated(300), search)
    assert search.next_values(list(reversed(done))) == []
    half = [one for one in done if one.value <= 200]
    assert search.next_values(half) == search.next_values(list(reversed(half))) != []


@pytest.mark.parametrize(
    ("reached", "split"),
    [([1, 1, 0, 0], 2), ([1, 1], 2), ([0, 0], 0), ([1, 0.4, 0.8, 0.2], 3), ([1, 0.2, 0.6, 0], 1), ([0, 1, 1, 0], 3)],
)
def test_the_crossing_is_that_of_the_isotonic_regression(reached: Sequence[float], split: int) -> None:
    assert crossing(reached) == split


def test_levels_are_accuracies() -> None:
    context, parameter = click.Context(click.Command("capacity")), click.Option(["--at"])
    assert parse_levels(context, parameter, "0.99,1") == Levels((1.0, 0.99))
    assert parse_levels(context, parameter, "recall@5=0.99") == Levels((0.99,), "recall@5")
    assert parse_levels(context, parameter, "recall@1=0.9") == Levels((0.9,))
    for text in ("recall@0=0.99", "recall@3=0.99", "recal@5=1"):
        with pytest.raises(UsageError, match="unknown metric of --at"):
            parse_levels(context, parameter, text)
    for text in ("", "99", "0", "nan", "all", "recall@5", "recall@5=2"):
        with pytest.raises(UsageError, match="accuracies above 0 and up to 1"):
            parse_levels(context, parameter, text)


REGISTRY = Registry()


def subject(
    task: str, *options: str, vary: str = "T0", model: str = "linear-memory", grid: Sequence[str] = ()
) -> Subject:
    trials = plan(REGISTRY, Request([model], [task], grid, options, "quick", (), (0, 1)))
    return Subject.of(trials, vary, options)


def test_facts_are_varied_up_to_the_whole_support() -> None:
    found = subject("bigram", "N=12")
    search = found.search(LEVELS, 0.1, None)
    assert (search.start, search.smallest, search.largest) == (12, 1, 144)
    assert [(trial.task_config.N, trial.task_config.T0, trial.seed) for trial in found.at(30)] == [
        (12, 30, 0),
        (12, 30, 1),
    ]
    assert found.search(LEVELS, 0.1, 40).largest == 40


def test_vocabularies_are_varied_with_all_their_contexts() -> None:
    found = subject("ngram", "S=1", vary="N")
    assert {(trial.task_config.N, trial.task_config.T0) for trial in found.at(30)} == {(30, 30)}
    search = found.search(LEVELS, 0.1, None)
    config = found.config(search.largest)
    assert search.largest == config.T0
    assert search.largest == found.config(search.largest + 1).T0


def test_answers_follow_the_vocabulary_if_they_are_the_tokens() -> None:
    assert {trial.task_config.A for trial in subject("ngram", "S=1", vary="N").at(30)} == {30}
    assert {trial.task_config.A for trial in subject("ngram", "S=1", "A=5", vary="N").at(30)} == {5}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task": "bigram", "grid": ["d=7,10,13"]}, "capacity measures one point, but the grid has 3"),
        ({"task": "low-entropy"}, "asks for distributions"),
    ],
)
def test_what_has_no_capacity_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        subject(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "vary"), [(("T0=30",), "T0"), (("T0=30",), "N"), (("N=30",), "N")])
def test_what_is_varied_is_not_set(options: tuple[str, ...], vary: str) -> None:
    with pytest.raises(UsageError, match=f"-T {options[0][:2].strip('=')}: capacity chooses"):
        subject("bigram", *options, vary=vary)


TASK_WITHOUT_T0 = """
from dataclasses import dataclass
import numpy as np
from membench.api import Facts, Shape, Task, hookimpl, option

@dataclass(frozen=True)
class Config:
    N: int = option(5, help="vocabulary", minimum=2)

def sample(config, rng):
    inputs = np.arange(config.N, dtype=np.int64)[:, None]
    return Facts(inputs, inputs[:, 0], np.full(config.N, 1 / config.N), config.N)

@hookimpl
def membench_tasks():
    shape = lambda c: Shape(c.N, 1, c.N)
    return [Task(name="fixed", version=1, summary="s", config=Config, shape=shape, sample=sample)]
"""


def test_a_task_without_t0_is_refused(membench: Callable[..., object], tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(TASK_WITHOUT_T0, "utf-8")
    found = membench("capacity", "--model", "lookup", "--task", "fixed", "--plugin", "fixed.py")
    assert found.returncode == 2
    assert "task 'fixed' has no option T0" in found.stderr


def test_the_verb_finds_draws_and_continues(membench: Callable[..., object], tmp_path: Path) -> None:
    words = ("capacity", "--model", "linear-memory", "--task", "ngram", "-T", "S=1", "-T", "N=12", "-M", "d=2",
             "--protocol", "quick", "--seeds", "2", "--resolution", "1", "--largest", "4", "--jobs", "1")  # fmt: skip
    first = membench(*words, "--json", "--plot", "capacity.svg")
    assert first.returncode == 0, first.stderr
    data = json.loads(first.stdout)
    whole = data["thresholds"][0]
    assert whole["status"] == "found"
    assert 1 <= whole["low"] <= whole["facts"] <= whole["high"] <= 4
    assert data["ran"] == 2 * len(data["values"]) > 4
    assert [row["facts"] for row in data["values"]] == sorted(row["facts"] for row in data["values"])
    assert data["peak"]["bits"] == max(row["bits"] for row in data["values"])
    assert (tmp_path / "capacity.svg").read_text("utf-8").count("<svg") == 1
    assert len(list((tmp_path / "results").rglob("*.json"))) == data["ran"]
    again = membench(*words, COLUMNS="80")
    assert again.returncode == 0, again.stderr
    assert f"0 trials run, {data['ran']} reused" in again.stdout
    assert f"all right: {whole['facts']:.4g} facts" in again.stdout
    assert max(map(len, again.stdout.splitlines())) <= 100
