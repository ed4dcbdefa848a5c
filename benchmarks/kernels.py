"""What each fused kernel saves over the general path, side by side: python benchmarks/kernels.py

Exact gradients over the 2500 facts of `bigram`, five replicas together; then models of three layers, on all 4900 facts
of N=70 and on minibatches of 512. The two ways take turns, each time is CPU time of one thread, and the median counts:
the machine may be shared.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from tabulate import tabulate

from membench.engine.execution import Execution
from membench.engine.trainer import Batches, Trainer
from membench.engine.workbench import Workbench
from membench.interface.options import label
from membench.interface.registry import Registry

BUDGETS = (3_000, 10_000, 30_000)
TIED = {"d": 9, "w": 98, "tied": True}  # the attention-mlp of about 3000 parameters that shares its weights
ATTENTION = {"d": 10, "H": 21, "layers": 3}
DEEP: Sequence[tuple[str, dict[str, Any]]] = (  # of the experiments with three layers
    ("aot", {**ATTENTION, "shared_projection": True}),
    ("aot", {**ATTENTION, "d_h": 4, "shared_projection": True, "one_projection": True}),
    ("aot", {**ATTENTION, "d_h": 4}),
    ("mlp-transformer", {"d": 10, "w": 400, "layers": 3, "skip_position": False}),
)
BATCH = 512
REPLICAS, TURNS = 5, 9
STEPS = {"off": 10, "on": 50}  # in one turn of the general path, and of the kernel
DEEP_STEPS = {"off": 2, "on": 10}
REGISTRY = Registry()


def benches(kernel: str) -> Iterator[Workbench]:
    """The model that each architecture with a kernel chooses for each budget, and one with tied heads."""
    task = REGISTRY.task("bigram")
    facts, execution = task.config(), Execution(kernel=kernel, compiling="off")
    for architecture in REGISTRY.architectures.values():
        if architecture.kernel and architecture.for_budget:
            for budget in BUDGETS:
                config = architecture.for_budget(task.shape(facts), budget)
                yield Workbench(architecture, config, task, facts, execution)
    tied = REGISTRY.architecture("attention-mlp")
    yield Workbench(tied, tied.config(**TIED), task, facts, execution)


def deep_benches(kernel: str) -> Iterator[Workbench]:
    task = REGISTRY.task("bigram")
    execution = Execution(kernel=kernel, compiling="off")
    for name, options in DEEP:
        architecture = REGISTRY.architecture(name)
        yield Workbench(architecture, architecture.config(**options), task, task.config(N=70), execution)


def trainer(bench: Workbench) -> Trainer:
    return bench.trainer(range(REPLICAS), [(0.95, 0.95)] * REPLICAS, planned=0)


def milliseconds(made: Trainer, steps: int, facts: int = 0) -> float:
    """CPU time of a step and model: on all facts, or on a minibatch of so many facts."""
    size = (REPLICAS, steps, BATCH)
    rng = np.random.default_rng(0)
    batches = Batches(rng.integers(facts, size=size), rng.integers(50, size=size)) if facts else None
    start = time.process_time()
    made.advance(np.full((REPLICAS, steps), 0.003, dtype=np.float32), batches)
    return 1e3 * (time.process_time() - start) / steps / REPLICAS


def row(bench: Workbench, ways: dict[str, Trainer], steps: dict[str, int] = STEPS, facts: int = 0) -> dict[str, str]:
    for made in ways.values():
        milliseconds(made, 2, facts)  # warms up
    turns = [{kernel: milliseconds(made, steps[kernel], facts) for kernel, made in ways.items()} for _ in range(TURNS)]
    general, fused = (statistics.median(turn[kernel] for turn in turns) for kernel in ("off", "on"))
    size = sum(parameter.numel() for parameter in bench.model(0).parameters())
    return {
        "architecture": bench.architecture.name,
        "model": label(bench.config),
        "parameters": f"{size:,}",
        "general, ms": f"{general:.2f}",
        "kernel, ms": f"{fused:.2f}",
        "ratio": f"{general / fused:.1f}",
    }


def main() -> None:
    torch.set_num_threads(1)
    rows, deep = [], []
    for slow, fast in zip(benches("off"), benches("on"), strict=True):
        rows.append(row(fast, {"off": trainer(slow), "on": trainer(fast)}))
        print(*rows[-1].values(), flush=True)
    for slow, fast in zip(deep_benches("off"), deep_benches("on"), strict=True):
        ways, facts = {"off": trainer(slow), "on": trainer(fast)}, len(fast.facts(0))
        deep.append({"facts in a step": f"{facts}", **row(fast, ways, DEEP_STEPS)})
        batched = {kernel: 5 * steps for kernel, steps in DEEP_STEPS.items()}
        deep.append({"facts in a step": f"{BATCH}", **row(fast, ways, batched, facts)})
        for line in deep[-2:]:
            print(*line.values(), flush=True)
    for table in (rows, deep):
        print("\n" + tabulate(table, headers="keys", tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
