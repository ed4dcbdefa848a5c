"""How fast the engine trains, as ratios taken side by side in one run.

    python benchmarks/engine.py                        all cases, a table, and engine.json
    python benchmarks/engine.py --quick                a few steps of each, in about a minute
    python benchmarks/engine.py --markdown engine.json the tables of docs/speed.md

Contestants take turns, each time is CPU time of one thread, and the median counts: the machine may
be shared. Compiling is reported apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
import torch
from contestants import PlainPlugin, jax_scan, plain_loop

from membench.engine.general import GeneralTrainer
from membench.engine.trainer import Batches, Trainer
from membench.engine.workbench import Workbench
from membench.interface.registry import Registry
from membench_aot.kernel import make_trainer

N, S, D, H, BATCH, REPLICAS = 50, 2, 10, 21, 256, 5  # the model of the paper's first experiment
PUBLISHED, PUBLISHED_STEPS = 0.861, 4096
TARGETS = {
    "general, eager": 12,
    "general, compiled": 25,
    "fused kernel": 150,
    "fused kernel over JAX": 5,
    "time to the published accuracy": 200,
    "plain plugin, 20 seeds, eager": 1.2,
    "plain plugin, 20 seeds, compiled": 2.5,
}
Contestant = Callable[[int], float]  # so many steps to CPU seconds
REGISTRY = Registry()


def bench(vocab: int = N, length: int = S, **config: Any) -> Workbench:
    architecture, task = REGISTRY.architecture("aot"), REGISTRY.task("ngram")
    size = min(vocab**length, 2500) if length != 2 else vocab**2
    options = {"d": D, "H": H, "shared_projection": True, **config}
    return Workbench(architecture, architecture.config(**options), task, task.config(N=vocab, S=length, T0=size))


def trainer(workbench: Workbench, replicas: int, kind: str) -> Trainer:
    modules = [workbench.model(seed) for seed in range(replicas)]
    facts = [workbench.facts(seed) for seed in range(replicas)]
    betas = np.array([[0.9, 0.999]] * replicas, dtype=np.float32)
    if kind == "fused":
        return make_trainer(modules, facts, betas)
    return GeneralTrainer(modules, facts, betas, compiling="on" if kind == "compiled" else "off")


def sampled(workbench: Workbench, replicas: int, kind: str, batch: int = BATCH) -> Contestant:
    """Training on minibatches, all replicas in one trainer."""
    made = trainer(workbench, replicas, kind)
    rng = np.random.default_rng(0)
    targets = np.stack([workbench.facts(seed).targets for seed in range(replicas)])

    def run(steps: int) -> float:
        contexts = rng.integers(targets.shape[1], size=(replicas, steps, batch))
        labels = np.take_along_axis(targets[:, None], contexts, axis=2)
        rates = np.full((replicas, steps), 0.01, dtype=np.float32)
        start = time.process_time()
        made.advance(rates, Batches(contexts, labels))
        return time.process_time() - start

    return run


def side_by_side(contestants: dict[str, tuple[Contestant, int, int]], repeats: int) -> dict[str, dict[str, float]]:
    """Median steps per second and model; each contestant is (run, steps at a time, models)."""
    first = {name: run(steps) for name, (run, steps, _) in contestants.items()}  # compiling and warming up
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, (run, steps, models) in contestants.items():
            times[name].append(run(steps) / steps / models)
    found = {name: statistics.median(values) for name, values in times.items()}
    return {
        name: {"ms": 1e3 * s, "steps_per_second": 1 / s, "first_call_seconds": first[name]} for name, s in found.items()
    }


def compare_with_plain(scale: float, repeats: int) -> dict[str, Any]:
    print("training by minibatches, N=50 d=10 H=21 batch 256 ...", flush=True)
    steps = lambda count: max(2, int(count * scale))  # noqa: E731
    contestants: dict[str, tuple[Contestant, int, int]] = {
        "plain loop": (plain_loop(N, S, D, H, BATCH), steps(30), 1),
        "general, eager": (sampled(bench(), REPLICAS, "eager"), steps(40), REPLICAS),
        "general, compiled": (sampled(bench(), REPLICAS, "compiled"), steps(40), REPLICAS),
        "fused kernel": (sampled(bench(), REPLICAS, "fused"), steps(400), REPLICAS),
    }
    jax = jax_scan(N, S, D, H, BATCH, REPLICAS)
    if jax is not None:
        contestants["JAX jit+vmap+scan"] = (jax, steps(100), REPLICAS)
    found = side_by_side(contestants, repeats)
    for row in found.values():
        row["ratio"] = found["plain loop"]["ms"] / row["ms"]
    return found


def time_to_published(plain_ms: float) -> dict[str, float]:
    """CPU seconds of exact training until all facts are at the published accuracy, against the plain loop's run.

    The plain loop's time is its measured time for a step times the 4096 steps that the published
    accuracy takes.
    """
    print("time to the published accuracy ...", flush=True)
    workbench = bench()
    seconds = []
    for seed in range(REPLICAS):
        betas = np.array([[0.95, 0.95]], dtype=np.float32)
        made = make_trainer([workbench.model(seed)], [workbench.facts(seed)], betas)
        rates = 0.01 * np.linspace(1, 0, 1500, endpoint=False, dtype=np.float32)[None]
        start = time.process_time()
        for at in range(0, rates.shape[1], 25):
            if made.advance(rates[:, at : at + 25]).accuracy[0, -1] >= PUBLISHED:
                break
        seconds.append(time.process_time() - start)
    ours, plain = statistics.median(seconds), plain_ms * PUBLISHED_STEPS / 1e3
    return {"fused_seconds": ours, "plain_seconds": plain, "ratio": plain / ours}


def plain_plugin(scale: float, repeats: int) -> dict[str, float]:
    """A module that nobody tuned, with 20 seeds together against one after the other."""
    print("a plain plugin with 20 seeds ...", flush=True)
    workbench = bench()
    facts = [workbench.facts(seed) for seed in range(20)]
    betas = np.array([[0.9, 0.999]] * 20, dtype=np.float32)
    targets = np.stack([one.targets for one in facts])

    def contestant(group: int, compiling: str) -> Contestant:
        made = [
            GeneralTrainer(
                [PlainPlugin(N, S) for _ in range(group)], facts[i : i + group], betas[:group], compiling=compiling
            )
            for i in range(0, 20, group)
        ]

        def run(steps: int) -> float:
            contexts = np.random.default_rng(0).integers(2500, size=(20, steps, BATCH))
            labels = np.take_along_axis(targets[:, None], contexts, axis=2)
            rates = np.full((20, steps), 0.01, dtype=np.float32)
            start = time.process_time()
            for i, one in zip(range(0, 20, group), made, strict=True):
                one.advance(rates[i : i + group], Batches(contexts[i : i + group], labels[i : i + group]))
            return time.process_time() - start

        return run

    steps = max(2, int(10 * scale))
    found = side_by_side(
        {name: (contestant(group, compiling), steps, 20)
         for name, group, compiling in (("loop", 1, "off"), ("eager", 20, "off"), ("compiled", 20, "on"))},
        repeats,
    )  # fmt: skip
    return {name: found["loop"]["ms"] / found[name]["ms"] for name in ("eager", "compiled")}


def achieved(fused_ms: float) -> dict[str, float]:
    """GFLOP/s of the kernel by the arithmetic that it needs, beside the machine's largest matrix product.

    Forward: each head's two pairs of maps multiplied, 2 H d^3; tables of what each token at each position
    wants and writes, (S+1) N H d^2; for each sample, scores and mixtures, 2 (S-1) H d, and the
    unembedding, N d. Backward costs twice, and a multiplication with an addition counts as two.
    """
    products = 2 * H * D**3 + (S + 1) * N * H * D**2 + BATCH * (2 * (S - 1) * H * D + N * D)
    flops = 6 * products
    a = torch.randn(1024, 1024)
    best = min(_timed(lambda: a @ a) for _ in range(5))
    return {"fused_gflops": flops / fused_ms / 1e6, "sgemm_gflops": 2 * 1024**3 / best / 1e9}


def _timed(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def growth(scale: float) -> dict[str, float]:
    """Steps per second and model of the kernel on minibatches when one thing is doubled."""
    print("growth ...", flush=True)
    cases: dict[str, tuple[dict[str, int], int]] = {
        "as above": ({}, REPLICAS), "2 H": ({"H": 2 * H}, REPLICAS), "2 d": ({"d": 2 * D}, REPLICAS),
        "2 N": ({"vocab": 2 * N}, REPLICAS), "2 S": ({"length": 2 * S}, REPLICAS), "2 replicas": ({}, 2 * REPLICAS),
    }  # fmt: skip
    steps = max(5, int(200 * scale))
    contestants = {
        name: (sampled(bench(**options), replicas, "fused"), steps, replicas)  # type: ignore[arg-type]
        for name, (options, replicas) in cases.items()
    }
    return {name: row["steps_per_second"] for name, row in side_by_side(contestants, 3).items()}


def memory(kind: str) -> float:
    """Peak memory in MiB that 20 replicas at N=200, d=50, H=11 add to a fresh process."""
    words = [sys.executable, __file__, "--memory", kind]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def _memory_here(kind: str) -> None:
    before = _peak_mib()
    sampled(bench(vocab=200, d=50, H=11), 20, kind, batch=1024)(2)
    print(_peak_mib() - before)


def _peak_mib() -> float:
    """Peak memory of this process; not by getrusage on Linux, where a child starts with its parent's peak."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def judge(found: dict[str, Any]) -> list[dict[str, Any]]:
    steps = found["minibatches"]
    measured = {name: steps[name]["ratio"] for name in ("general, eager", "general, compiled", "fused kernel")}
    if "JAX jit+vmap+scan" in steps:
        measured["fused kernel over JAX"] = steps["JAX jit+vmap+scan"]["ms"] / steps["fused kernel"]["ms"]
    measured["time to the published accuracy"] = found["published"]["ratio"]
    measured["plain plugin, 20 seeds, eager"] = found["plugin"]["eager"]
    measured["plain plugin, 20 seeds, compiled"] = found["plugin"]["compiled"]
    rows = []
    for name, value in measured.items():
        target = TARGETS[name]
        rows.append({"case": name, "target": f">= {target:g}x", "measured": f"{value:.3g}x", "met": value >= target})
    for kind, value in found["memory_mib"].items():
        rows.append({"case": f"memory of 20 replicas, N=200 d=50 H=11, {kind}", "target": "< 1024 MiB",
                     "measured": f"{value:.0f} MiB", "met": value < 1024})  # fmt: skip
    return rows


def markdown(found: dict[str, Any]) -> str:
    from tabulate import tabulate

    steps = [
        {"contestant": name, "ms per step and model": f"{row['ms']:.3f}", "ratio": f"{row['ratio']:.1f}",
         "first call, CPU s": f"{row['first_call_seconds']:.1f}"}
        for name, row in found["minibatches"].items()
    ]  # fmt: skip
    targets = [{**row, "met": "met" if row["met"] else "missed"} for row in judge(found)]
    grown = [{"doubled": name, "steps/s and model": f"{value:,.0f}"} for name, value in found["growth"].items()]
    published, flops = found["published"], found["flops"]
    tables = [
        tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True) for rows in (steps, targets, grown)
    ]
    return "\n\n".join([
        f"Machine: {found['machine']}.",
        tables[0],
        tables[1],
        f"Published accuracy {PUBLISHED}: {published['fused_seconds']:.2f} CPU s with exact gradients and the kernel, "
        f"{published['plain_seconds']:.0f} CPU s for the plain loop's {PUBLISHED_STEPS} steps (extrapolated from its "
        f"measured step). The kernel does {flops['fused_gflops']:.1f} GFLOP/s of the model's arithmetic; a 1024 x 1024 "
        f"matrix product reaches {flops['sgemm_gflops']:.0f} on the same core.",
        tables[2],
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps of each")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each contestant")
    parser.add_argument("--json", type=Path, default=Path("engine.json"), help="where the numbers go")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="print the tables of an earlier run")
    parser.add_argument("--memory", choices=("fused", "eager"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory:
        _memory_here(arguments.memory)
        return
    if arguments.markdown:
        print(markdown(json.loads(arguments.markdown.read_text())))
        return
    scale, repeats = (0.1, 2) if arguments.quick else (1.0, arguments.repeats)
    found: dict[str, Any] = {"machine": _machine(), "minibatches": compare_with_plain(scale, repeats)}
    found["published"] = time_to_published(found["minibatches"]["plain loop"]["ms"])
    found["plugin"] = plain_plugin(scale, repeats)
    found["flops"] = achieved(found["minibatches"]["fused kernel"]["ms"])
    found["growth"] = growth(scale)
    found["memory_mib"] = {kind: memory(kind) for kind in ("fused", "eager")}
    arguments.json.write_text(json.dumps(found, indent=1))
    print(markdown(found))


def _machine() -> str:
    from membench.measure.environment import describe_environment

    here = describe_environment("cpu", 1, "float32")
    return f"{here['cpu']}, {os.cpu_count()} cores, {here['platform']}, torch {here['torch']}, Python {here['python']}"


if __name__ == "__main__":
    main()
