"""Pages that are written from the code say what the code says; the tutorial's files and commands work as printed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)"(?P<add> add)?)?\n(?P<text>.*?)^```$', re.M | re.S
)
BLOCKS = [found.groupdict() for found in BLOCK.finditer((DOCS / "plugins.md").read_text("utf-8"))]


def generated(name: str) -> str:
    spec = importlib.util.spec_from_file_location("regenerate", DOCS / "regenerate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.PAGES[name]()
    return text


@pytest.mark.parametrize("name", ["api", "bounds", "field"])
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / f"{name}.md").read_text("utf-8") == generated(name), f"run: python docs/regenerate.py {name}"


def test_the_api_page_names_all_that_a_plugin_may_import_and_every_hook() -> None:
    from membench import api, kernels
    from membench.interface import hookspecs

    page = (DOCS / "api.md").read_text("utf-8")
    hooks = [name for name in vars(hookspecs) if name.startswith("membench_")]
    assert [name for name in (*api.__all__, *kernels.__all__, *hooks) if f"### `{name}`\n" not in page] == []


# What takes minutes on the page, in seconds; everything else is as it stands there.
TINY = ("--protocol", "quick", "-P", "steps=40", "--seeds", "2")


def test_the_tutorial_leads_from_an_empty_folder_to_a_verified_row(environment: Any, tmp_path: Path) -> None:
    printed = {}
    for block in BLOCKS:
        if block["title"]:
            file = tmp_path / block["title"]
            file.parent.mkdir(exist_ok=True)
            with file.open("a" if block["add"] else "w", encoding="utf-8") as out:
                out.write(("\n\n" if block["add"] else "") + block["text"])
        elif block["language"] == "sh":
            for command in block["text"].splitlines():
                printed[command] = run(command, environment, tmp_path)
    assert len(printed) == 10
    (verified,) = [text for command, text in printed.items() if "verify" in command]
    assert "4 verified" in verified
    (board,) = [text for command, text in printed.items() if "leaderboard" in command]
    (shown,) = [block["text"] for block in BLOCKS if block["language"] == "text"]
    for words in ("verified, unsigned", "verified, not", "all rows: yours, trained"):  # whatever the numbers are
        assert (words in board, words in shown) == (True, True)
    (bounds,) = [text for command, text in printed.items() if "bounds" in command]
    assert re.search(r"one-dimension-each\s+accuracy >= 0.1\b", bounds)
    records = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "results" / "sums").rglob("*.json")]
    assert {record["task"]["distribution"] for record in records} == {"membench-product"}
    assert len(records) == 3 * 2


def run(command: str, environment: Any, folder: Path) -> str:
    words = command.split()
    if words == ["pip", "install", "-e", "."]:
        environment.install("-e", folder)
        return ""
    assert words[0] == "membench"
    words += TINY if words[1] == "run" else ()
    paths = {"PATH": f"{environment.folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "100"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env={**os.environ, **paths}, check=False,
                          timeout=300)  # fmt: skip
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_tutorial_says_all_that_a_bound_can_be() -> None:
    from typing import get_args

    from membench.interface.bound import Direction, Quantity

    page = (DOCS / "plugins.md").read_text("utf-8")
    assert [word for word in (*get_args(Quantity), *get_args(Direction)) if f"\n| `{word}` |" not in page] == []
