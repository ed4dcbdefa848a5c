"""The product as a stranger gets it: a wheel in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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

    def install(self, what: Path) -> None:
        words = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--quiet", str(what)]
        subprocess.run([sys.executable, "-m", "pip", "--python", self.python, "install", *words], check=True)

    def membench(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "bin" / "membench"), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment"))
    venv.create(made.folder, with_pip=False)
    (made.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made.install(wheel)
    return made
