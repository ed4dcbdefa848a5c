"""The page on the reproduction says what the records that come with membench say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def regenerate() -> Any:
    spec = importlib.util.spec_from_file_location("regenerate", DOCS / "regenerate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = regenerate()
BLOCKS = [(found["words"], found["output"]) for found in SCRIPT.BLOCK.finditer(SCRIPT.PAGE.read_text("utf-8"))]


def test_the_page_has_an_output_for_each_of_the_six_experiments() -> None:
    assert {words.split()[1] for words, _ in BLOCKS} >= {f"e{number}" for number in range(1, 7)}


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d*\.?\d+(?:e-?\d+)?", text)]


@pytest.mark.parametrize(("words", "output"), BLOCKS, ids=[words for words, _ in BLOCKS])
def test_an_output_is_what_the_command_prints(words: str, output: str, tmp_path: Path) -> None:
    found = SCRIPT.output_of(words, tmp_path)
    assert re.sub(r"[\d.]+", "", found) == re.sub(r"[\d.]+", "", output)
    # other machines may differ in the last digit of a fit
    assert numbers(found) == pytest.approx(numbers(output), rel=0.02, abs=0.002)
    assert list(tmp_path.glob("*.png"))
