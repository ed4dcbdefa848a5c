"""Guarantees that training missed: said in the record, and only where a bound holds for every model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import membench
from membench.theory.limits import missed_guarantee

BOUND: dict[str, Any] = {
    "name": "majority", "quantity": "accuracy", "direction": "lower", "status": "applies", "value": 0.25,
}  # fmt: skip


def test_the_best_guarantee_that_was_missed_is_named() -> None:
    weaker = {**BOUND, "name": "chance", "value": 0.2}
    sentence = missed_guarantee({"accuracy": 0.1}, [weaker, BOUND])
    assert sentence == "below what is proven: majority guarantees an accuracy of 0.25, and 0.1 was found"


@pytest.mark.parametrize(
    "change",
    [{"value": 0.1}, {"value": None}, {"direction": "upper"}, {"quantity": "kl"}, {"status": "order"},
     {"expected": True}, {"restricted_to": "d >= N"}],
)  # fmt: skip
def test_what_is_no_guarantee_for_this_model_is_not_missed(change: dict[str, Any]) -> None:
    assert missed_guarantee({"accuracy": 0.1}, [{**BOUND, **change}]) == ""
    assert missed_guarantee({"accuracy": None}, [BOUND]) == ""


def test_a_training_that_hardly_began_says_so_in_its_record(tmp_path: Path) -> None:
    results = membench.run("aot", "bigram", M={"d": 8, "H": 4}, T={"N": 8}, protocol="quick", P={"steps": 1},
                           seeds=1, out=tmp_path, executor="inline", progress=False)  # fmt: skip
    (record,) = results.records
    assert any(note.startswith("below what is proven") for note in record.trace["notes"])
