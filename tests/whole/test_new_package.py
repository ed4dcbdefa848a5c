"""What `membench new` makes, as its author's users get it: a wheel beside that of membench, far from any checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

QUICK = ("--protocol", "quick", "--seeds", "2", "-T", "N=8")
VARIANTS = {
    "architecture": ((), ("--model", "my-arch", "--task", "bigram")),
    "task": (("--task",), ("--model", "lookup", "--task", "my-arch")),
    "bound": (("--bound",), ("--model", "lookup", "--task", "bigram")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", VARIANTS)
def test_its_wheel_installs_and_passes_its_tests_and_is_measured(
    own_environment: Any, tmp_path: Path, kind: str
) -> None:
    words, measured = VARIANTS[kind]
    environment = own_environment
    made = environment.membench("new", "my-arch", *words, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    project = tmp_path / "membench-my-arch"
    environment.install(project)  # pip builds its wheel first
    tested = [environment.python, "-m", "pytest", "-q", str(project / "tests")]
    done = subprocess.run(tested, capture_output=True, text=True, cwd=tmp_path, timeout=580, check=False)
    assert done.returncode == 0, done.stdout
    ran = environment.membench("run", *measured, *QUICK, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "2 trials run" in ran.stdout
