"""CPU seconds that `converged` takes on the general path, in two checkouts: python benchmarks/checkouts.py OLD NEW.

The same trial runs in each by turns, as a user runs it: a two-layer MLP from a file, with about 3,000 parameters on
1,000 facts. Both import what is installed, but membench itself from their own folder. For Linux, which can say how much
time the workers of a program took after it has ended.
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


PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl: orphans of our children become ours


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs=2, type=Path)
    parser.add_argument("--facts", type=int, default=1000, help="of bigram with N=32, at most 1024")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--protocol", nargs="*", default=[], metavar="NAME=VALUE", help="such as steps=300 rounds=3")
    given = parser.parse_args()
    taken: dict[Path, list[float]] = {one: [] for one in given.checkouts}
    for _ in range(given.repeats):
        for checkout in given.checkouts:
            taken[checkout].append(cpu_seconds(checkout.resolve(), given))
            print(f"{checkout}: {taken[checkout][-1]:.1f} CPU s", flush=True)
    old, new = (statistics.median(taken[one]) for one in given.checkouts)
    print(f"median {old:.1f} and {new:.1f} CPU s: {old / new:.2f} times less")


def cpu_seconds(checkout: Path, given: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mlp.py"
        model.write_text(MLP)
        paths = [checkout, *(checkout / name for name in ("plugins", "tasks", "leaderboard"))]
        options = [word for option in given.protocol for word in ("-P", option)]
        words = [sys.executable, "-m", "membench", "run", "--model", f"{model}:MLP", "--jobs", "1", "--out", folder]
        words += ["--task", "bigram", "-T", "N=32", "-T", f"T0={given.facts}", "--seeds", str(given.seeds), *options]
        before = _children()
        subprocess.run(words, check=True, capture_output=True, cwd=folder,
                       env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))})  # fmt: skip
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
