from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from membench.interface.registry import Registry


def test_all_architectures_run_on_all_tasks_in_one_command(membench: Any) -> None:
    done = membench("run", "--model", "all", "--task", "all", "--protocol", "quick", "-P", "steps=20", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    registry = Registry()
    board = json.loads(membench("leaderboard", "results", "--no-published", "--json").stdout)
    rows = [row for table in board["tables"] for row in table["rows"]]
    assert {(row["architecture"], row["task"]) for row in rows} == {
        (model, task) for model in registry.installed for task in registry.tasks
    } - {("lookup", "world")}  # a table of all that `world` could ask is too large


@pytest.mark.parametrize(("words", "bits"), [(("--protocol", "construct"), 64), (("--protocol", "quick"), 32)])
def test_information_is_counted_in_the_bits_of_the_weights(
    membench: Any, tmp_path: Path, words: tuple[str, ...], bits: int
) -> None:
    done = membench("run", "--model", "linear-memory", "--task", "bigram", "-T", "N=8", "--seeds", "1", *words)
    assert done.returncode == 0, done.stderr
    (record,) = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "results").rglob("*.json")]
    (value,) = [bound["value"] for bound in record["bounds"] if bound["name"] == "information-capacity"]
    assert value == bits * record["size"]["parameters"] / 3  # log2 of eight answers


def test_the_example_memorises_all_400_associations(membench: Any) -> None:
    options = ("-T", "N=20", "-M", "d=10", "-M", "d_h=10", "-M", "H=8", "--seeds", "2")
    done = membench("run", "--model", "aot", "--task", "bigram", *options, "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["accuracy"] == 1
    assert round(row["associations"]) == 400
