from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from samples import make_record

from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.records.store import Entry
from membench_leaderboard.explain import explain, print_explanation
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise

REGISTRY = Registry()
NGRAM = {"name": "ngram", "version": 1, "config": {}, "label": "S=3"}


def entry(name: str, id: str, seed: int = 0, accuracy: float = 0.5, parameters: int = 2_000, **more: Any) -> Entry:
    published = more.pop("published", False)
    record = make_record(
        id=id,
        seed=seed,
        architecture={
            "name": name,
            "version": 1,
            "config": {"d": 10},
            "label": f"d=10 {id}",
            "distribution": "somewhere",
        },
        metrics={"accuracy": accuracy, "kl": 1.0},
        size={"parameters": parameters, "without_embeddings": 50},
        trace={"converged": False, "steps": 300, "choice": {"lr": 0.03, "tried": [1, 2]}, "notes": ["took a [nap]"]},
        environment={"membench": "0.1.0", "cpu": "a fast one"},
        **more,
    )
    return Entry(record, f"results/{id}-s{seed}.json", published=published)


BOARD = [
    entry("aot", "aaa1", 0, 0.4), entry("aot", "aaa1", 1, 0.6), entry("aot", "aab2", 0, 0.9, parameters=20_000),
    entry("mine", "bbb3", 0, 0.1),
]  # fmt: skip


def told(text: str, board: list[Entry] = BOARD, **more: Any) -> dict[str, Any]:
    return explain(board, summarise(to_frame(board)), text, REGISTRY, **more)


def test_a_model_is_told_with_its_records_choices_bounds_machine_and_command() -> None:
    story = told("aaa")
    assert (story["id"], story["accuracy"], story["rank"]) == ("aaa1", 0.5, 2)
    assert [(one["seed"], one["accuracy"], one["record"]) for one in story["seeds"]] == [
        (0, 0.4, "results/aaa1-s0.json"), (1, 0.6, "results/aaa1-s1.json"),
    ]  # fmt: skip
    assert story["seeds"][0]["choice"] == {"lr": 0.03}
    assert {bound["name"]: bound["value"] for bound in story["bounds"]}["corollary-2"] == pytest.approx(0.1)
    assert story["environment"] == [{"membench": "0.1.0", "cpu": "a fast one"}]
    assert story["command"].startswith("membench run --model aot --task bigram")
    assert story["notes"] == []


def test_an_architecture_with_one_model_is_that_model_and_with_several_its_area() -> None:
    assert told("mine")["id"] == "bbb3"
    story = told("aot")
    assert [(piece["id"], piece["from"], piece["to"]) for piece in story["pieces"]] == [
        ("aaa1", 3_000, 20_000), ("aab2", 20_000, 100_000),
    ]  # fmt: skip
    assert story["area"] == pytest.approx(sum(piece["share"] * piece["accuracy"] for piece in story["pieces"]))
    assert len(story["models"]) == 2


def test_a_rank_is_an_architecture_or_a_model_depending_on_what_is_shown() -> None:
    assert told("1")["kind"] == "score"
    assert told("1", models=True)["id"] == "aab2"
    assert told("3", models=True)["id"] == "bbb3"


def test_what_is_unknown_or_could_be_several_is_said_with_the_names_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"--explain nobody: no row .* the architectures are: aot, mine"):
        told("nobody")
    with pytest.raises(UsageError, match=r"--explain aa could mean 2 rows: .*aab2.*aaa1.* by its id"):
        told("aa")
    elsewhere = [*BOARD, entry("mine", "ccc4", task=NGRAM)]
    with pytest.raises(UsageError, match=r"mine .*on bigram \(N=50\).*mine .*on ngram \(S=3\).*--task, -T"):
        told("mine", elsewhere)
    with pytest.raises(UsageError, match="no row has"):
        told("")


def test_yours_is_meant_where_there_is_a_published_one_too() -> None:
    both = [entry("aot", "aaa1", accuracy=0.7, published=True), entry("aot", "aaa1", accuracy=0.2)]
    assert told("aot", both)["accuracy"] == 0.2
    assert told("aot", both[:1])["published"] is True


def test_a_plugin_that_is_not_here_and_another_version_are_noted() -> None:
    assert told("mine")["notes"] == ["architecture 'mine' is not installed here; it came from somewhere"]
    old = {"name": "bigram", "version": 0, "config": {}, "label": ""}
    (note,) = told("aot", [entry("aot", "x", task=old)])["notes"]
    assert "task 'bigram' is version 1 here, not 0" in note
    newer = entry("aot", "x")
    newer.record.architecture["version"] = 2
    assert told("aot", [newer])["notes"] == [
        "architecture 'aot' is version 1 here, not 2: the command makes another trial"
    ]


@pytest.mark.parametrize("text", ["aaa1", "aot"])
def test_it_is_printed_within_80_columns_but_for_what_is_to_be_copied(text: str) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_explanation(told(text), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    story = told(text)
    commands = [story["command"]] if text == "aaa1" else [piece["command"] for piece in story["pieces"]]
    assert all(f"  {command}\n" in shown for command in commands)
    lines = [line for line in shown.splitlines() if line.startswith(("seed", "0 ", "1 ", "3,000", "chance"))]
    assert lines
    assert max(map(len, lines)) <= 80
    if text == "aaa1":
        for part in ("took a [nap]", "lr=0.03", "0.4000", "a fast one", "records in results", "aaa1-s1.json", "300+"):
            assert part in shown
