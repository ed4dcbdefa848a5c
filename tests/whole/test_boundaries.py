"""What a plugin may import of membench, whichever folders there are: an allow list.

Import contracts would have to name every plugin. These tests find them, so that a new one needs an entry point in
pyproject.toml and nothing else.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLIC = ("membench.api", "membench.kernels", "membench.theory")
PACKAGES = sorted([*ROOT.glob("plugins/membench_*"), *ROOT.glob("tasks/membench_*")])
FILES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]


def imports(source: str) -> Iterator[str]:
    """What is imported, wherever it stands: also for types alone, and inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private(source: str, package: str) -> list[str]:
    """Of these, what is ours but neither public nor the plugin's own."""
    allowed = (*PUBLIC, package)
    ours = (name for name in imports(source) if name.partition(".")[0].startswith("membench"))
    return [name for name in ours if not any(name == one or name.startswith(f"{one}.") for one in allowed)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_plugins_import_what_is_public_and_nothing_of_each_other(path: Path) -> None:
    package = next(one.name for one in PACKAGES if one in path.parents)
    assert private(path.read_text("utf-8"), package) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from membench.api import Shape", []),
        ("from membench import api", []),
        ("import membench.kernels", []),
        ("from membench.theory.frames import circle", []),
        ("from membench_mine.model import Model", []),
        ("from . import model", []),
        ("import torch", []),
        ("from membench.engine.fused import Layout", ["membench.engine.fused.Layout"]),
        ("from membench import engine", ["membench.engine"]),
        ("import membench", ["membench"]),
        ("from membench.interface.facts import Facts", ["membench.interface.facts.Facts"]),
        ("from membench.apiary import bees", ["membench.apiary.bees"]),
        ("from membench_aot.model import Heads", ["membench_aot.model.Heads"]),
        ("from membench_mine_too import x", ["membench_mine_too.x"]),
        ("def f():\n    import membench.records.store", ["membench.records.store"]),
        ("if TYPE_CHECKING:\n    from membench.plan import trial", ["membench.plan.trial"]),
    ],
)
def test_an_import_of_the_harness_is_found_wherever_it_stands(line: str, found: list[str]) -> None:
    assert private(line, "membench_mine") == found


def test_the_harness_knows_no_plugin() -> None:
    plugins = {package.name for package in PACKAGES}
    for path in [*ROOT.glob("membench/**/*.py"), *ROOT.glob("leaderboard/**/*.py")]:
        known = {name.partition(".")[0] for name in imports(path.read_text("utf-8"))}
        assert not known & plugins, path


def test_pyproject_names_a_plugin_once() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    entry_points = set(tomllib.loads(text)["project"]["entry-points"]["membench"].values())
    for package in PACKAGES:
        assert package.name in entry_points
        assert text.count(package.name) == 1
