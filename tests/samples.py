"""Things made by hand that many tests use."""

from __future__ import annotations

from membench.records.record import Record

FACTS = {"kind": "association", "contexts": 2500, "vocab": 50, "answers": 50, "length": 2}


def make_record(**changes: object) -> Record:
    """A complete record, as a trial would leave it."""
    fields: dict[str, object] = {
        "id": "abc",
        "seed": 0,
        "status": "complete",
        "architecture": {"name": "aot", "version": 1, "config": {"d": 10}, "label": "d=10"},
        "task": {"name": "bigram", "version": 1, "config": {"N": 50}, "label": "N=50", **FACTS},
        "protocol": {"name": "converged", "version": 2, "config": {}, "label": ""},
        "metrics": {"accuracy": 0.5, "kl": 1.0, "associations": 10.0, "bits": 5.0, "bits_per_parameter": 0.1},
        "size": {"parameters": 100, "without_embeddings": 50, "buffers": 0},
        "bounds": [
            {"name": "chance", "quantity": "accuracy", "direction": "reference", "value": 0.02, "reason": None},
            {"name": "zero-head", "quantity": "accuracy", "direction": "reference", "value": 0.07, "reason": None},
            {"name": "corollary-2", "quantity": "accuracy", "direction": "lower", "value": 0.1, "reason": None},
        ],
        "trace": {"converged": True},
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]
