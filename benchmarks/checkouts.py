"""CPU seconds that `converged` takes on the general path, in two checkouts: python benchmarks/checkouts.py OLD NEW.

The same trial runs in each by turns, as a user runs it: a two-layer MLP from a file, with about 3,000 parameters on
1,000 facts. Both import what is installed, but membench itself from their own folder. For Linux, which can say how much
time the workers of a program took after it has ended.

With --training, only the steps of its training are timed: of one replica, of the four settings of the bounded loss and
of the six of the grid.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MLP = """
import torch
from torch import nn

class MLP(nn.Module):
    def __init__(self, vocab, length, answers, d=10, w=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.hidden = nn.Linear(d * length, w)
        self.unembed = nn.Linear(w, answers)

    def forward(self, tokens):
        return self.unembed(torch.relu(self.hidden(self.embed(tokens).flatten(1))))
"""


# CPU milliseconds of a step and replica, the least of many segments, as a worker process takes them.
STEPS = """
import time
import numpy as np
import torch
from membench.engine.general import GeneralTrainer
from membench.interface.facts import Facts

torch.set_num_threads(1)
try:
    from membench.execute.allocator import keep_freed_memory
    keep_freed_memory()
except ImportError:  # an older checkout, whose workers did not
    pass
rng = np.random.default_rng(0)
chosen = rng.permutation(1024)[:FACTS]
inputs = np.stack([chosen // 32, chosen % 32], axis=1).astype(np.int64)
facts = Facts(inputs, rng.integers(0, 32, FACTS), np.full(FACTS, 1 / FACTS), 32)
for count, bounded in ((1, True), (4, True), (6, False)):
    modules, betas = [MLP(32, 2, 32) for _ in range(count)], np.full((count, 2), 0.95, np.float32)
    trainer = GeneralTrainer(modules, [facts] * count, betas)
    rates = np.full((count, 50), 1e-4, np.float32)
    slack = np.full((count, 50), 0.01, np.float32) if bounded else None
    times = []
    for _ in range(SEGMENTS):
        start = time.process_time()
        trainer.advance(rates, slack=slack, finishes=True)
        times.append(time.process_time() - start)
    print(min(times) / 50 / count * 1000)
"""
TIMED = ("one replica", "four settings", "six settings")


PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl: orphans of our children become ours


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs=2, type=Path)
    parser.add_argument("--facts", type=int, default=1000, help="of bigram with N=32, at most 1024")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--protocol", nargs="*", default=[], metavar="NAME=VALUE", help="such as steps=300 rounds=3")
    parser.add_argument("--training", action="store_true", help="the steps of the training alone")
    given = parser.parse_args()
    if given.training:
        compare_steps(given)
        return
    taken: dict[Path, list[float]] = {one: [] for one in given.checkouts}
    for _ in range(given.repeats):
        for checkout in given.checkouts:
            taken[checkout].append(cpu_seconds(checkout.resolve(), given))
            print(f"{checkout}: {taken[checkout][-1]:.1f} CPU s", flush=True)
    old, new = (statistics.median(taken[one]) for one in given.checkouts)
    print(f"median {old:.1f} and {new:.1f} CPU s: {old / new:.2f} times less")


def compare_steps(given: argparse.Namespace) -> None:
    best = {one: [float("inf")] * len(TIMED) for one in given.checkouts}
    for _ in range(given.repeats):
        for checkout in given.checkouts:
            code = f"FACTS, SEGMENTS = {given.facts}, 8\n{MLP}\n{STEPS}"
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                                  cwd=checkout, env=environment(checkout.resolve()))  # fmt: skip
            best[checkout] = [min(pair) for pair in zip(best[checkout], map(float, done.stdout.split()), strict=True)]
    for words, old, new in zip(TIMED, *(best[one] for one in given.checkouts), strict=True):
        print(f"{words:<14} {old:.3f} and {new:.3f} ms for a step and replica: {old / new:.2f} times less")


def environment(checkout: Path) -> dict[str, str]:
    paths = [checkout, *(checkout / name for name in ("plugins", "tasks", "leaderboard"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def cpu_seconds(checkout: Path, given: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mlp.py"
        model.write_text(MLP)
        options = [word for option in given.protocol for word in ("-P", option)]
        words = [sys.executable, "-m", "membench", "run", "--model", f"{model}:MLP", "--jobs", "1", "--out", folder]
        words += ["--task", "bigram", "-T", "N=32", "-T", f"T0={given.facts}", "--seeds", str(given.seeds), *options]
        before = _children()
        subprocess.run(words, check=True, capture_output=True, cwd=folder, env=environment(checkout))
        return _children() - before


def _children() -> float:
    """CPU seconds of all children that have ended, once all have."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
