"""Records whose accuracy is of one set of weights, and whose bits are of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records import weights
from membench.records.record import Record
from membench.records.store import Store, read
from membench.verify.verdict import FAILED, VERIFIED, verify_file


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is asked for more than it holds."""
    registry, store = Registry(), Store(tmp_path_factory.mktemp("results"))
    settings = ["steps=100", "rounds=2", "lr=0.01", "beta1=0.95", "beta2=0.95"]
    request = Request(["aot"], ["bigram"], ["d=4", "H=1"], ["N=12"], "converged", settings, (0,))
    trials = plan(registry, request)
    execute(trials, store, registry, Execution(executor="inline", keep_weights=True))
    return store.path(trials[0])


def record_of(path: Path) -> Record:
    return read(path).record


def test_a_record_says_what_each_set_of_weights_reached(path: Path) -> None:
    record = record_of(path)
    reached = record.trace["reached"]
    assert record.metrics["accuracy"] == reached["most_facts"]["accuracy"] > reached["least_loss"]["accuracy"]
    assert record.metrics["kl"] == reached["least_loss"]["kl"] < reached["most_facts"]["kl"]
    content = weights.read(record.weights, path)
    assert weights.prefixes(content) == ["", weights.LEAST_LOSS]
    most, least = (weights.from_bytes(content, prefix) for prefix in weights.prefixes(content))
    assert most.keys() == least.keys()
    assert not any(name.startswith(weights.LEAST_LOSS) for name in most)


def test_both_sets_are_verified(path: Path) -> None:
    verdict = verify_file(path, Selection())
    assert verdict.outcome == VERIFIED, verdict.reason
    assert verdict.metrics == pytest.approx(record_of(path).metrics, rel=1e-5)


@pytest.mark.parametrize("name", ["accuracy", "bits", "kl", "bits_of_accuracy"])
def test_a_number_of_either_set_that_is_not_so_is_found(name: str, path: Path, tmp_path: Path) -> None:
    data = json.loads(path.read_text())
    data["metrics"][name] = data["metrics"][name] * 1.05 + 0.01
    forged = tmp_path / path.name
    forged.write_text(json.dumps(data))
    forged.with_suffix(weights.SUFFIX).write_bytes(path.with_suffix(weights.SUFFIX).read_bytes())
    verdict = verify_file(forged, Selection())
    assert verdict.outcome == FAILED
    assert name in verdict.reason
