"""docs/python.md, executed: as a script with tiny settings, and parts of it in a real notebook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)

# What a reader's calls would take minutes for, in seconds; everything else is as it stands on the page.
TINY = """
import functools
import matplotlib
import membench

def tiny(call, **settings):
    return lambda *arguments, **given: call(*arguments, **{**given, **settings})

membench.run = tiny(membench.run, protocol="quick", P={"steps": 5})
membench.tune = tiny(membench.tune, protocol="quick", P={"steps": 5})
membench.capacity = tiny(membench.capacity, T={"N": 6}, protocol="quick", P={"steps": 5}, seeds=2, resolution=1)
"""


def execute(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MPLBACKEND": "agg"}
    return subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=folder,
                          env=environment, timeout=300, check=False)  # fmt: skip


def test_every_snippet_runs_in_order(tmp_path: Path) -> None:
    assert len(SNIPPETS) >= 8
    done = execute(TINY + "\n".join(SNIPPETS), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "did you mean 'aot'?" in done.stdout
    assert "slope" in done.stdout
    assert (tmp_path / "bits.png").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"results", "tuning", "bits.png"}


def test_every_call_and_every_word_of_it_is_on_the_page() -> None:
    import inspect

    import membench
    from membench.results import Results

    calls = [
        getattr(membench, name)
        for name in ("run", "capacity", "tune", "bounds", "floor", "reproduce", "load", "compare")
    ]
    for call in calls:
        assert f"membench.{call.__name__}(" in PAGE
    for call in (membench.run, Results.plot):
        words = [name for name in inspect.signature(call).parameters if name not in ("self", "x", "y")]
        assert [name for name in words if f"`{name}`" not in PAGE and f"`{name}=" not in PAGE] == []
    for word in ("vary", "at", "resolution", "largest"):
        assert word in inspect.signature(membench.capacity).parameters
        assert f"`{word}`" in PAGE


CELLS = [
    TINY,
    'results = membench.run("lookup", "bigram", T={"N": [5, 6]}, seeds=2)\nresults',
    "results.summary()",
    'results.plot(x="N")',
    next(snippet for snippet in SNIPPETS if "class Bag" in snippet).replace("mine = ", ""),
    'membench.run("aott", "bigram")',
]


def test_a_notebook_shows_tables_figures_and_progress(tmp_path: Path) -> None:
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    cells = [{"cell_type": "code", "id": str(number), "execution_count": None, "metadata": {}, "outputs": [],
              "source": source} for number, source in enumerate(CELLS)]  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "mine.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    words = ["--to", "notebook", "--execute", "--allow-errors", "--output", "done.ipynb", "mine.ipynb"]
    done = subprocess.run([sys.executable, "-m", "nbconvert", *words], capture_output=True, text=True, cwd=tmp_path,
                          timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended = json.loads((tmp_path / "done.ipynb").read_text("utf-8"))["cells"]
    first, run, summary, plot, bag, wrong = (shown(cell) for cell in ended)
    assert first == []
    assert "4/4 trials in" in run[0]["text/plain"]
    assert "<table" in run[1]["text/html"]
    assert run[1]["text/plain"].startswith("lookup on bigram")
    assert "<table" in summary[0]["text/html"]
    assert [set(one) for one in plot] == [{"image/png", "text/plain"}]  # once
    assert "Bag on bigram" in bag[-1]["text/plain"]
    assert "did you mean 'aot'?" in wrong[0]["error"]


def shown(cell: dict[str, Any]) -> list[dict[str, str]]:
    """What a cell shows, by kind."""
    outputs = []
    for output in cell["outputs"]:
        data = output.get("data") or {output["output_type"]: output.get("evalue") or output.get("text")}
        outputs.append({kind: "".join(text) for kind, text in data.items()})
    return outputs
