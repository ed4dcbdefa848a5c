"""What `membench new` writes is a plugin that loads, passes its own tests and has what its README promises."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from membench.cli import cli
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.regress.suite import load_suite
from membench.verbs.new import KINDS, new

REGISTRY = Registry()
NAMES = {"architecture": "my-arch", "task": "my-pairs", "bound": "my-bits"}
COMMON = {".gitignore", ".github/workflows/test.yml", "README.md", "pyproject.toml"}


def write(folder: Path, kind: str) -> Path:
    project = folder / f"membench-{NAMES[kind]}"
    new(NAMES[kind], kind, project, REGISTRY)
    return project


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_all_files_and_no_blank_is_left(tmp_path: Path, kind: str) -> None:
    project = write(tmp_path, kind)
    package = "membench_" + NAMES[kind].replace("-", "_")
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    own = {f"{package}/__init__.py", f"tests/test_{package}.py"}
    own |= {"capacity.toml"} if kind != "bound" else set()
    own |= {f"{package}/model.py"} if kind == "architecture" else set()
    assert files == COMMON | own
    for path in files:
        text = (project / path).read_text("utf-8")
        assert not [word for word in ("@name@", "@package@", "@project@", "@version@", "@kind@") if word in text]
    declared = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    assert declared["name"] == project.name
    assert declared["entry-points"]["membench"] == {NAMES[kind]: package}


@pytest.mark.parametrize("kind", KINDS)
def test_its_workflow_tests_and_guards_capacity(tmp_path: Path, kind: str) -> None:
    project = write(tmp_path, kind)
    workflow: Any = yaml.safe_load((project / ".github/workflows/test.yml").read_text("utf-8"))
    steps = workflow["jobs"]["test"]["steps"]
    assert "pytest" in [step.get("run") for step in steps]
    gates = [step for step in steps if "membench regress" in step.get("run", "")]
    assert len(gates) == (kind != "bound")
    for gate in gates:
        assert "--suite capacity.toml --require-baseline" in gate["run"]
        suite = load_suite(str(project / "capacity.toml"))
        assert suite.name == "capacity"  # so that its baseline is baselines/capacity.json


def test_each_loads_and_passes_its_own_tests(tmp_path: Path) -> None:
    """As if it were installed: beside each package lies what pip would note of it."""
    projects = [write(tmp_path, kind) for kind in KINDS]
    for kind, project in zip(KINDS, projects, strict=True):
        package = "membench_" + NAMES[kind].replace("-", "_")
        noted = project / f"{package}-0.1.0.dist-info"
        noted.mkdir()
        (noted / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project.name}\nVersion: 0.1.0\n")
        (noted / "entry_points.txt").write_text(f"[membench]\n{NAMES[kind]} = {package}\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, projects))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    command += [str(project / "tests") for project in projects]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 passed" in done.stdout  # 13 checks and a measurement; of the task 3 tests, of the bound 3


def test_the_command_says_what_to_type_next(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["new", "my-task", "--task", "--out", str(tmp_path / "here")])
    assert done.exit_code == 0, done.output
    assert f"Next: cd {tmp_path / 'here'} && pip install -e '.[test]' && pytest" in done.output
    assert (tmp_path / "here" / "membench_my_task" / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("aot", "architecture", "the name 'aot' is taken: an architecture of membench"),
        ("bigram", "task", "the name 'bigram' is taken: a task of membench"),
        ("chance", "bound", "the name 'chance' is taken: a bound of membench"),
        ("tasks", "architecture", "is taken by a plugin"),
        ("leaderboard", "architecture", "a package 'membench_leaderboard' is installed"),
        ("my arch", "architecture", "cannot be used: a name starts with a letter"),
        ("1st", "architecture", "cannot be used"),
        ("../up", "architecture", "cannot be used"),
        ("", "architecture", "cannot be used"),
        ("a" * 300, "architecture", "cannot be used"),
        ("ärch", "architecture", "cannot be used"),
        ("my-", "architecture", "cannot be used"),
    ],
)
def test_a_name_that_cannot_be_used_gets_a_sentence(tmp_path: Path, name: str, kind: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        new(name, kind, tmp_path / "out", REGISTRY)
    assert words in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(UsageError, match="not an empty folder"):
        new("my-arch", "architecture", tmp_path, REGISTRY)
    with pytest.raises(UsageError, match="not an empty folder"):
        new("my-arch", "architecture", tmp_path / "mine.txt", REGISTRY)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_one_kind_at_a_time() -> None:
    done = CliRunner().invoke(cli, ["new", "my-arch", "--task", "--bound"])
    assert isinstance(done.exception, UsageError)
    assert not Path("membench-my-arch").exists()
