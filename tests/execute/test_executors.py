from __future__ import annotations

import bz2
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from membench.engine.execution import Execution
from membench.errors import MembenchError, UsageError
from membench.execute.driver import Watcher, execute
from membench.execute.executor import EXECUTORS
from membench.execute.job import make_jobs
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records import store
from membench.records.record import Record
from membench.records.store import Store

SEEDS = (0, 1, 2)
WITHOUT_EXTRA = [name for name in EXECUTORS if name != "ray"]  # which has test_ray.py


def run(
    tmp_path: Path, registry: Registry, seeds: tuple[int, ...] = SEEDS, executor: str = "local", **more: Any
) -> list[Record]:
    request = Request(
        ["toy"], ["bigram"], task_options=["N=5"], protocol="quick", protocol_options=["steps=3"], seeds=seeds, **more
    )
    return execute(plan(registry, request), Store(tmp_path / "out"), registry, Execution(jobs=2, executor=executor))


@pytest.fixture
def registry(plugin_file: Path) -> Registry:
    return Registry(Selection(files=(str(plugin_file),)))


@pytest.mark.parametrize("executor", WITHOUT_EXTRA)
def test_every_trial_leaves_a_record_that_says_how_it_came_about(
    tmp_path: Path, registry: Registry, executor: str
) -> None:
    records = run(tmp_path, registry, executor=executor)
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
            "storage_bits": 125 * 32 + 8 * len("none") + 4 * len("8"),  # with its options, a text and a digit
            "learned_bits": 125 * 32,
            "active": 2 * 8 + 16 * 5 + 5,
            "state": None,
            "flops": 2 * 16 * 5,
            "code_bytes": len(bz2.compress(Path(record.architecture["distribution"]).read_bytes())),
        }
        assert record.architecture["distribution"].endswith("toy_plugin.py")
        assert len(record.task["data_sha256"]) == 64
        assert record.environment["threads"] == 1
        assert {"chance", "zero-head", "bayes"} <= {bound["name"] for bound in record.bounds}
        assert record.run["seconds"] > 0
        assert record.run["cpu_seconds"] > 0
    assert len({record.task["data_sha256"] for record in records}) == len(SEEDS)
    assert len(list((tmp_path / "out").rglob("*.json"))) == len(SEEDS)


def test_executors_find_the_same_numbers_and_weights(tmp_path: Path, registry: Registry) -> None:
    """Probes included: the order in which jobs are released is the driver's."""
    request = Request(["toy"], ["bigram"], (), ["N=5"], "converged", ["steps=20", "rounds=2"], seeds=SEEDS)
    trials = plan(registry, request)
    for executor in WITHOUT_EXTRA:
        execute(trials, Store(tmp_path / executor), registry, Execution(keep_weights=True, executor=executor))
    for trial in trials:
        first, *others = (Store(tmp_path / executor).path(trial) for executor in WITHOUT_EXTRA)
        assert others
        for other in others:
            assert Record.from_json(first.read_text()).metrics == Record.from_json(other.read_text()).metrics
            assert first.with_suffix(".safetensors").read_bytes() == other.with_suffix(".safetensors").read_bytes()


def test_an_executor_that_does_not_exist_is_refused_before_anything_runs(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(UsageError, match="executor 'slurm' is not one of local, inline, ray"):
        run(tmp_path, registry, executor="slurm")
    assert not list(tmp_path.rglob("*.json"))


def test_weights_are_there_before_the_record_that_names_them(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(store, "write_atomically", lambda path, content: written.append(path.suffix))
    request = Request(["toy"], ["bigram"], (), ["N=5"], "quick", ["steps=3"], seeds=(0,))
    execute(plan(registry, request), Store(tmp_path), registry, Execution(keep_weights=True, executor="inline"))
    assert written == [".safetensors", ".json"]


def test_inline_leaves_the_process_as_it_was(
    tmp_path: Path, registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(2)
    run(tmp_path, registry, executor="inline")
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.random.get_rng_state(), state)
    assert capfd.readouterr().out == ""  # what a model prints goes to standard error
    torch.set_num_threads(threads)


def test_a_script_without_a_main_guard_is_not_run_again_by_its_workers(tmp_path: Path, plugin_file: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "from pathlib import Path\n"
        "from membench.engine.execution import Execution\n"
        "from membench.execute.driver import execute\n"
        "from membench.interface.registry import Registry, Selection\n"
        "from membench.plan.request import Request, plan\n"
        "from membench.records.store import Store\n"
        f"registry = Registry(Selection(files=({str(plugin_file)!r},)))\n"
        "trials = plan(registry, Request(['toy'], ['bigram'], (), ['N=4'], 'quick', ['steps=2'], seeds=(0, 1)))\n"
        "records = execute(trials, Store(Path('out')), registry, Execution(jobs=2))\n"
        "print([record.status for record in records])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout == "once\n['complete', 'complete']\n", done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", "returned NaN or infinite logits"),
        ("shape", "shape"),
        ("torch", "(toy_plugin.py, line 30)"),  # raised inside torch
        ("raise", "broken on purpose (toy_plugin.py, line 27)"),  # torch.func and membench are between it and us
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
    with pytest.raises(MembenchError, match="device 'cuda' is not available; this machine has: cpu") as caught:
        execute(plan(registry, request), Store(tmp_path), registry, Execution(device="cuda"))
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
    execute(plan(registry, request), Store(tmp_path), registry, Execution(jobs=1), watcher)
    assert sorted(told) == list(SEEDS)
    assert fractions[-1] == 1
