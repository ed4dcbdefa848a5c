"""The plot of a capacity shows its thresholds, also those that are only an end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from membench.capacity_search.measurement import Measurement
from membench.capacity_search.plot import draw_capacity
from membench.capacity_search.threshold import peak, threshold
from membench.errors import UsageError


def measured(accuracies: dict[int, float], parameters: int = 100) -> list[Measurement]:
    load = {facts: 5 * facts / parameters if parameters else math.nan for facts in accuracies}
    return [
        Measurement(facts, seed, facts, load[facts], accuracy, load[facts] * accuracy)
        for facts, accuracy in accuracies.items()
        for seed in range(3)
    ]


def drawn(done: list[Measurement], path: Path) -> str:
    draw_capacity(done, [threshold(done, (1.0,), 1.0)], peak(done), "a title & more", path)
    return path.read_text("utf-8")


def test_thresholds_and_peak_are_in_the_legend(tmp_path: Path) -> None:
    done = measured({10: 1.0, 20: 1.0, 22: 0.9, 40: 0.3})
    text = drawn(done, tmp_path / "found.svg")
    one = threshold(done, (1.0,), 1.0)
    assert one.low <= 20 < one.facts < 22 <= one.high
    assert f"<!-- all right: {one.facts:.4g} facts ({one.low:.4g} to {one.high:.4g}) -->" in text
    assert "<!-- peak: 1.00 bits per parameter -->" in text
    assert "a title &amp; more" in text


def test_an_end_that_was_not_passed_is_said(tmp_path: Path) -> None:
    assert "all right: at least 20 facts" in drawn(measured({10: 1.0, 20: 1.0}), tmp_path / "all.svg")
    assert "all right: below 10 facts" in drawn(measured({10: 0.5, 20: 0.4}), tmp_path / "none.svg")


def test_what_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must end in"):
        drawn(measured({10: 1.0}), tmp_path / "a.gif")
    with pytest.raises(UsageError, match="without parameters"):
        drawn(measured({10: 1.0}, parameters=0), tmp_path / "a.svg")
