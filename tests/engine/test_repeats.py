"""A trial's number depends on the trial alone: on no other seed, no order and no number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.records.record import Record
from membench.records.store import Store

REGISTRY = Registry()
OPTIONS = {"quick": ("steps=6",), "converged": ("steps=4", "rounds=2")}


def run(protocol: str, seeds: tuple[int, ...], out: Path, executor: str, jobs: int) -> dict[int, Record]:
    request = Request(["mlp-transformer"], ["bigram"], ["d=4", "w=6"], ["N=6"], protocol, OPTIONS[protocol], seeds)
    execution = Execution(kernel="off", executor=executor, jobs=jobs, keep_weights=True)
    return {one.seed: one for one in execute(plan(REGISTRY, request), Store(out), REGISTRY, execution)}


@pytest.mark.parametrize(("protocol", "executor"), [("quick", "local"), ("converged", "inline")])
def test_three_seeds_and_then_five_are_five(protocol: str, executor: str, tmp_path: Path) -> None:
    run(protocol, (0, 1, 2), tmp_path / "grown", "inline", 1)
    grown = run(protocol, (0, 1, 2, 3, 4), tmp_path / "grown", executor, 2)
    backwards = run(protocol, (4, 3, 2, 1, 0), tmp_path / "backwards", "inline", 1)
    for seed in range(5):
        one, other = grown[seed], backwards[seed]
        assert one.complete
        assert one.trace["paths"] == ["general"]
        assert (one.weights, one.metrics, one.trace) == (other.weights, other.metrics, other.trace)
