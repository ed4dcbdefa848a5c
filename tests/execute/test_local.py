from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from membench.errors import MembenchError
from membench.execute.execution import Execution, Watcher
from membench.execute.job import make_jobs
from membench.execute.local import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records.record import Record
from membench.records.store import Store

SEEDS = (0, 1, 2)


def run(tmp_path: Path, registry: Registry, seeds: tuple[int, ...] = SEEDS, **more: Any) -> list[Record]:
    request = Request(
        ["toy"], ["bigram"], task_options=["N=5"], protocol="quick", protocol_options=["steps=3"], seeds=seeds, **more
    )
    return execute(plan(registry, request), Store(tmp_path / "out"), registry.selection, Execution(jobs=2))


@pytest.fixture
def registry(plugin_file: Path) -> Registry:
    return Registry(Selection(files=(str(plugin_file),)))


def test_every_trial_leaves_a_record_that_says_how_it_came_about(tmp_path: Path, registry: Registry) -> None:
    records = run(tmp_path, registry)
    assert sorted(record.seed for record in records) == list(SEEDS)
    for record in records:
        assert record.complete
        assert record.size == {
            "parameters": 5 * 8 + 16 * 5 + 5,
            "without_embeddings": 125,
            "buffers": 0,
            "without_gradient": 0,
            "identifiable": None,
            "learned_buffers": 0,
            "storage_bits": 125 * 32,
        }
        assert record.architecture["distribution"].endswith("toy_plugin.py")
        assert len(record.task["data_sha256"]) == 64
        assert record.environment["threads"] == 1
        assert {"chance", "zero-head", "bayes"} <= {bound["name"] for bound in record.bounds}
        assert record.run["seconds"] > 0
    assert len({record.task["data_sha256"] for record in records}) == len(SEEDS)
    assert len(list((tmp_path / "out").rglob("*.json"))) == len(SEEDS)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", "NaN"),
        ("shape", "shape"),
        ("raise", "broken on purpose"),
        ("type", "not an nn.Module"),
        ("die", "ended with code 7"),
    ],
)
def test_a_model_that_misbehaves_costs_its_own_trials(
    tmp_path: Path, registry: Registry, fault: str, words: str
) -> None:
    records = run(tmp_path, registry, seeds=(0, 1), model_options=[f"fault=none,{fault}"])
    good = [record for record in records if record.complete]
    bad = [record for record in records if not record.complete]
    assert [len(good), len(bad)] == [2, 2]
    assert all(words in str(record.error) for record in bad)
    assert all(record.architecture["config"]["fault"] == fault for record in bad)
    assert len(list((tmp_path / "out").rglob("*.json"))) == 4


def test_a_device_that_is_not_there_is_a_usage_error(tmp_path: Path, registry: Registry) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    request = Request(["toy"], ["bigram"], task_options=["N=5"], protocol="quick", seeds=(0,))
    with pytest.raises(MembenchError, match="device 'cuda' is not there; this machine has: cpu") as caught:
        execute(plan(registry, request), Store(tmp_path), registry.selection, Execution(device="cuda"))
    assert caught.value.exit_code == 2


def test_groups_depend_on_the_seeds_alone(registry: Registry) -> None:
    def groups(count: int, jobs: int) -> list[tuple[int, ...]]:
        request = Request(["toy"], ["bigram"], seeds=tuple(range(count)))
        return [job.seeds for job in make_jobs(plan(registry, request), registry.selection, Execution(jobs=jobs))]

    assert groups(1, 2) == [(0,)]
    assert groups(5, 1) == groups(5, 8) == [(0, 1, 2), (3, 4)]
    assert all(len(group) <= 5 for group in groups(23, 2))
    assert sorted(seed for group in groups(23, 2) for seed in group) == list(range(23))


def test_progress_and_finished_trials_are_told(tmp_path: Path, registry: Registry) -> None:
    told: list[int] = []
    fractions: list[float] = []
    watcher = Watcher(
        progress=lambda fraction, text: fractions.append(fraction), finished=lambda t, r: told.append(r.seed)
    )
    request = Request(["toy"], ["bigram"], task_options=["N=5"], protocol="quick", seeds=SEEDS)
    execute(plan(registry, request), Store(tmp_path), registry.selection, Execution(jobs=1), watcher)
    assert sorted(told) == list(SEEDS)
    assert fractions[-1] == 1
