"""The product as a stranger gets it: a wheel in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPENDENCIES = [folder for folder in sys.path if folder.endswith("site-packages")]


@dataclass
class Environment:
    """A fresh virtual environment; torch and the other dependencies are seen through a .pth file, not copied."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def site_packages(self) -> Path:
        return next((self.folder / "lib").glob("python*/site-packages"))

    def install(self, *what: str | Path) -> None:
        words = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--quiet", *map(str, what)]
        subprocess.run([sys.executable, "-m", "pip", "--python", self.python, "install", *words], check=True)

    def membench(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "bin" / "membench"), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)


def build_wheel(project: Path, out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=project, check=True)
    (built,) = out.glob("*.whl")
    return built


def make_environment(folder: Path, *installed: Path) -> Environment:
    made = Environment(folder)
    venv.create(made.folder, with_pip=False)
    (made.site_packages / "dependencies.pth").write_text("\n".join(DEPENDENCIES) + "\n")
    for what in installed:
        made.install(what)
    return made


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    return make_environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture
def own_environment(tmp_path: Path, wheel: Path) -> Environment:
    """One that a test may install things into."""
    return make_environment(tmp_path / "environment", wheel)


ENTRY = 'aot = "membench_aot"'
PLUGIN = f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "membench-aot"
version = "0.7"
dependencies = ["membench"]

[project.entry-points.membench]
{ENTRY}
"""


@pytest.fixture(scope="session")
def lifted(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with a membench that has no `aot`, and beside it that folder as a distribution of its own."""
    folder = tmp_path_factory.mktemp("lifted")
    tree, project = folder / "tree", folder / "project"
    unwanted = shutil.ignore_patterns("membench_aot", "__pycache__")
    for name in ("membench", "plugins", "tasks", "leaderboard"):
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    declared = (ROOT / "pyproject.toml").read_text("utf-8")
    assert declared.count(ENTRY) == 1
    (tree / "pyproject.toml").write_text(declared.replace(ENTRY, ""), encoding="utf-8")
    shutil.copytree(ROOT / "plugins" / "membench_aot", project / "membench_aot")
    (project / "pyproject.toml").write_text(PLUGIN, encoding="utf-8")
    return make_environment(folder / "environment", build_wheel(tree, folder / "wheel"), project)
