"""Precision from end to end: training in bfloat16, and weights rounded after training, verified and found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import membench
from membench.errors import UsageError
from membench.interface.registry import Selection
from membench.records.record import Record
from membench.verify.verdict import verify


def measure(out: Path, model: str = "aot", **more: Any) -> membench.Results:
    options = {"M": {"d": 6, "H": 3} if model == "aot" else {"d": 5}, "T": {"N": 8}, "protocol": "quick"}
    return membench.run(model, "bigram", **{**options, "seeds": 1, "executor": "inline", "keep_weights": True,
                        "out": out, "progress": False, **more})  # fmt: skip


def only(results: membench.Results) -> Record:
    (record,) = results.records
    assert record.complete, record.error
    return record


def files(out: Path) -> list[Path]:
    return sorted(out.rglob("*.json"))


def verdicts(out: Path) -> list[str]:
    return [f"{one.outcome} {one.reason}".strip() for one in verify(files(out), Selection(), 1)]


def test_a_record_has_the_numbers_of_rounded_weights_beside_the_full_ones(tmp_path: Path) -> None:
    metrics = only(measure(tmp_path, quantize="int8,int4,bfloat16")).metrics
    size = only(measure(tmp_path)).size
    assert metrics["accuracy@int8"] == pytest.approx(metrics["accuracy"], abs=0.1)
    assert (metrics["accuracy@int4"] or 0) < (metrics["accuracy@int8"] or 0)
    assert metrics["learned_bits@bfloat16"] == 16 * size["parameters"]
    assert 4 * size["parameters"] < (metrics["learned_bits@int4"] or 0) < 4.6 * size["parameters"]
    assert verdicts(tmp_path) == ["verified"]


def test_what_is_asked_for_later_is_measured_again_and_nothing_is_lost(tmp_path: Path) -> None:
    assert measure(tmp_path, quantize="int4").ran == 1
    assert measure(tmp_path).ran == 0
    later = measure(tmp_path, quantize=["int8"])
    assert later.ran == 1
    assert {"accuracy@int4", "accuracy@int8"} <= only(later).metrics.keys()
    assert measure(tmp_path, quantize="int4,int8").ran == 0
    assert [row["weights"] for row in later.quantized()] == ["int8", "int4"]


@pytest.mark.parametrize("name", ["accuracy@int8", "bits@int8", "learned_bits@int8"])
def test_verification_rounds_again_and_finds_what_is_not_so(name: str, tmp_path: Path) -> None:
    measure(tmp_path, quantize="int8")
    (file,) = files(tmp_path)
    record = json.loads(file.read_text("utf-8"))
    record["metrics"][name] += 1 if name != "accuracy@int8" else -0.125
    file.write_text(json.dumps(record), "utf-8")
    (verdict,) = verdicts(tmp_path)
    assert verdict.startswith(f"failed {name} is")
    assert "when its weights are rounded again, but the record says" in verdict


def test_both_sets_of_weights_are_rounded_and_verified(tmp_path: Path) -> None:
    """Accuracy is of the weights that hold most facts, and divergence of those of the least loss."""
    record = only(measure(tmp_path, "linear-memory", protocol="converged", P={"steps": 40, "rounds": 2},
                          quantize="int8"))  # fmt: skip
    assert record.trace["reached"]["least_loss"]["accuracy"] < record.metrics["accuracy"]
    assert record.metrics["kl@int8"] == pytest.approx(record.metrics["kl"], rel=0.2)
    assert verdicts(tmp_path) == ["verified"]


@pytest.mark.parametrize("model", ["aot", "linear-memory"])
def test_bfloat16_is_trained_stored_and_verified_in_16_bits(model: str, tmp_path: Path) -> None:
    P = {"dtype": "bfloat16", "steps": 150, "rounds": 1}
    record = only(measure(tmp_path, model, protocol="converged", P=P))
    assert record.environment["dtype"] == "bfloat16"
    assert record.trace["paths"] == ["general"]
    assert record.size["learned_bits"] == 16 * record.size["parameters"]
    assert (record.metrics["accuracy"] or 0) > 0.3
    assert verdicts(tmp_path) == ["verified"]


def test_an_accuracy_of_bfloat16_is_summed_in_more_bits(tmp_path: Path) -> None:
    """In 8 bits 0.998 is 1, and a training that has not everything right would end."""
    P = {"dtype": "bfloat16", "steps": 200, "rounds": 1, "lr": 0.003, "beta1": 0.9, "beta2": 0.999}
    record = only(measure(tmp_path, protocol="converged", P=P, T={"N": 24}, M={"d": 12, "H": 8}))
    seen = [value for one in record.trace["rounds"] for value in one["curve"]]
    assert any(round(value * 576) / 576 == pytest.approx(value, abs=1e-5) and 0.05 < value < 1 for value in seen)
    assert len({round(value, 6) for value in seen}) > 3


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 32), ("float64", 64)])
def test_constructed_weights_are_measured_and_verified_as_they_are_stored(
    dtype: str, bits: int, tmp_path: Path
) -> None:
    P = {"construction": "selector", **({} if dtype == "float64" else {"dtype": dtype})}
    record = only(measure(tmp_path, "pair-mlp", M={"w": 9}, protocol="construct", P=P))
    assert record.environment["dtype"] == dtype
    assert record.size["learned_bits"] == bits * record.size["parameters"]
    assert record.metrics["accuracy"] == 1.0
    assert verdicts(tmp_path) == ["verified"]


def test_a_type_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown type to round weights to 'int2'; did you mean 'int8'"):
        measure(tmp_path, quantize="int8,int2")
    with pytest.raises(UsageError, match="dtype"):
        measure(tmp_path, protocol="converged", P={"dtype": "float16"})
