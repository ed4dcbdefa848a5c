from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from zipfile import ZipFile


def test_the_wheel_adds_nothing_but_membench_to_site_packages(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0].rstrip("_") for name in names if not name.startswith("membench")} == set()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert {"membench", "membench_tasks", "membench_leaderboard", "membench_aot"} <= tops
    assert "membench/py.typed" in names
    assert "membench/scaffold/architecture/@package@/model.py.template" in names
    page = {"__init__.py", "page.html", "tables.html", "panel.html", "page.css", "page.js"}
    assert {f"membench_leaderboard/page/{name}" for name in page} <= set(names)


def test_the_installed_wheel_runs_far_from_the_repository(environment: Any, tmp_path: Path) -> None:
    where = [environment.python, "-c", "import membench, membench_aot; print(membench.__file__, membench_aot.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.split()
    assert all(path.startswith(str(environment.folder)) for path in found)
    done = environment.membench(
        "run", "--model", "aot", "--task", "bigram", "-T", "N=8", "--protocol", "quick", "--seeds", "2", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "2 trials run" in done.stdout


THIRD_PARTY = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "bag-of-tokens"
version = "0.3"
dependencies = ["membench"]

[project.entry-points.membench]
bag = "bag_of_tokens"
""",
    "bag_of_tokens.py": """
from dataclasses import dataclass

from membench.api import Architecture, hookimpl, option


@dataclass(frozen=True)
class Config:
    d: int = option(16, help="width", minimum=1)


def build(shape, config):
    from torch import nn

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.EmbeddingBag(shape.vocab, config.d)
            self.out = nn.Linear(config.d, shape.vocab)

        def forward(self, tokens):
            return self.out(self.word(tokens))

    return Bag()


@hookimpl
def membench_architectures():
    return [Architecture(name="bag", summary="The mean of the tokens.", reference="none", config=Config, build=build)]
""",
}


def test_a_third_party_plugin_needs_no_change_to_membench(environment: Any, tmp_path: Path) -> None:
    project = tmp_path / "plugin"
    project.mkdir()
    for name, text in THIRD_PARTY.items():
        (project / name).write_text(text)
    environment.install(project)
    listed = json.loads(environment.membench("models", "--json", cwd=tmp_path).stdout)
    (row,) = [row for row in listed if row["name"] == "bag"]
    assert (row["distribution"], row["version"]) == ("bag-of-tokens", "0.3")
    ran = environment.membench(
        "run", "--model", "bag", "--task", "bigram", "-T", "N=6", "-P", "rounds=1", "--seeds", "2", cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    shown = environment.membench("leaderboard", "results", "--no-published", "--json", cwd=tmp_path)
    ((row,),) = [table["rows"] for table in json.loads(shown.stdout)["tables"]]
    assert (row["architecture"], row["rank"], row["seeds"]) == ("bag", 1, 2)
    assert row["parameters"] == 6 * 16 + 16 * 6 + 6
