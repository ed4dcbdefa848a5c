"""Fixtures that many tests share: a small plugin file, and the command line as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Models of the tests are tiny: more threads only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PLUGIN = """
from dataclasses import dataclass

from membench.api import Architecture, hookimpl, option


@dataclass(frozen=True)
class Config:
    width: int = option(8, help="width", minimum=1)
    fault: str = option("none", help="what goes wrong")


def build(shape, config):
    import os
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(shape.vocab, config.width)
            self.out = nn.Linear(shape.length * config.width, shape.vocab)

        def forward(self, tokens):
            print("a plugin that talks")
            if config.fault == "raise" and torch.is_grad_enabled():
                raise RuntimeError("broken on purpose")
            if config.fault == "die":
                os._exit(7)
            logits = self.out(self.word(tokens).flatten(0 if config.fault == "torch" else 1))
            if config.fault == "nan":
                logits = logits * float("nan")
            if config.fault == "shape":
                logits = logits[:, :-1]
            return logits

    return "not a module" if config.fault == "type" else Model()


@hookimpl
def membench_architectures():
    return [Architecture(name="toy", summary="a toy", reference="none", config=Config, build=build)]
"""


@pytest.fixture
def plugin_file(tmp_path: Path) -> Path:
    """A third-party plugin that is not installed; its option `fault` makes it misbehave."""
    path = tmp_path / "toy_plugin.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return path


@pytest.fixture
def membench(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line in a process of its own, run from an empty folder."""

    def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "COLUMNS": "100", **environment}
        command = [sys.executable, "-m", "membench.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False)

    return call
