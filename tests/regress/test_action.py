"""The GitHub action: its steps, taken from the file, run by bash as a runner would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from regression_samples import PLUGIN, SUITE

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


def run_step(name: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """One step with the action's defaults and some inputs, in a folder that is also the runner's temporary one."""
    values = {key: one["default"] for key, one in ACTION["inputs"].items()} | inputs
    known = {f"inputs.{key}": value for key, value in values.items()} | {"github.action_path": str(ROOT)}
    step = STEPS[name]
    env = {key: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], text) for key, text in step["env"].items()}
    runner = {"RUNNER_TEMP": folder, "GITHUB_STEP_SUMMARY": folder / "summary.md", "GITHUB_OUTPUT": folder / "output"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder, env={**os.environ, **env, **{key: str(one) for key, one in runner.items()}, "PATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "tiny.toml").write_text(SUITE, encoding="utf-8")
    return tmp_path


def test_it_writes_a_baseline_and_then_fails_on_a_loss_with_a_summary(project: Path) -> None:
    inputs = {"suite": "tiny.toml", "plugin": "mine.py\n"}
    first = run_step("Compare with the baseline", project, **inputs, **{"require-baseline": "false"})
    assert first.returncode == 0, first.stderr
    assert (project / "baselines" / "tiny.json").exists()
    assert "there was no baseline" in (project / "summary.md").read_text("utf-8")
    (project / "mine.py").write_text(PLUGIN.replace("LOSS = False", "LOSS = True"), encoding="utf-8")
    second = run_step("Compare with the baseline", project, **inputs, model="mine")
    assert second.returncode == 1, second.stderr
    assert "capacity was lost" in (project / "summary.md").read_text("utf-8")
    outputs = dict(line.split("=", 1) for line in (project / "output").read_text("utf-8").splitlines())
    assert set(outputs) == set(ACTION["outputs"])
    assert all(Path(path).exists() for path in outputs.values())


def test_a_missing_baseline_fails_and_the_summary_says_that_there_is_more_in_the_log(project: Path) -> None:
    done = run_step("Compare with the baseline", project, suite="tiny.toml", strict="true", baseline="b; exit 0")
    assert done.returncode == 2
    assert "there is no baseline 'b; exit 0'" in done.stderr
    assert "exit code 2" in (project / "summary.md").read_text("utf-8")
    assert not (project / "output").exists()  # no path of a report that is not there


def test_what_it_promises_is_what_was_measured() -> None:
    """False alarms are rare and not impossible: the page says how many there were."""
    page = (ROOT / "docs" / "regression.md").read_text("utf-8")
    alarms, runs = map(int, re.findall(r"fresh seeds, all architectures \| \d+ \| (\d+) of (\d+) \|", page)[0])
    assert "at most once in a hundred runs on noise" in ACTION["description"]
    assert alarms * 100 <= runs


def test_no_input_is_pasted_into_a_script() -> None:
    assert [name for name, step in STEPS.items() if "${{" in step["run"]] == []


def test_what_is_installed_is_this_repository_with_its_constraints() -> None:
    step = STEPS["Install membench"]
    assert step["env"]["SOURCE"] == "${{ github.action_path }}"
    assert step["run"] == 'python -m pip install --constraint "$SOURCE/constraints.txt" "$SOURCE"'
    assert (ROOT / "constraints.txt").exists()
