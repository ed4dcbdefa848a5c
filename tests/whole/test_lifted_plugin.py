"""A built-in plugin, lifted out of the tree unchanged, is a plugin like anybody's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


def test_a_built_in_plugin_works_from_a_distribution_of_its_own(lifted: Any, tmp_path: Path) -> None:
    where = [lifted.python, "-c", "import membench, membench_aot; print(membench.__file__, membench_aot.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.split()
    assert all(path.startswith(str(lifted.folder)) for path in found)
    listed = json.loads(lifted.membench("models", "--json", cwd=tmp_path).stdout)
    (row,) = [row for row in listed if row["name"] == "aot"]
    assert (row["distribution"], row["version"]) == ("membench-aot", "0.7")


def test_its_kernel_trains_it_and_its_bounds_speak_of_it(lifted: Any, tmp_path: Path) -> None:
    options = ("-T", "N=6", "-M", "d=4", "-M", "H=2", "--protocol", "quick", "-P", "steps=30", "--seeds", "1")
    done = lifted.membench("run", "--model", "aot", "--task", "bigram", *options, "--kernel", "on", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "results").rglob("*.json")]
    assert record["architecture"]["distribution"] == "membench-aot"
    assert {bound["name"] for bound in record["bounds"]} >= {"theorem-1", "chance"}
