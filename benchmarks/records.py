"""What many records cost: a board of them, a dry run and a rerun that finds them all, as files and as one pack.

    python benchmarks/records.py                              10,000 records of 2,000 points
    python benchmarks/records.py --points 20000 --folder x    100,000, kept in x
    python benchmarks/records.py --points 20000 --packed      100,000 in a pack alone, and a board of them alone

Each command runs in a process of its own; CPU time and the most memory it held. The records have the parts and the
length of real ones; their numbers are drawn. Ratios count: the machine may be shared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from leaderboard import SEEDS, bound, record
from membench.interface.options import to_dict
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store

WIDTHS = 100  # values of d; the values of H make up the rest of the points
FOR_EACH_SEED = 4  # bounds that depend on the facts, and so on the seed


def grid(points: int) -> list[str]:
    return ["--model", "aot", "--task", "bigram", "-M", f"d=1:{WIDTHS}", "-M", f"H=1:{points // WIDTHS}"]


def write(store: Store, points: int) -> int:
    options = [f"d=1:{WIDTHS}", f"H=1:{points // WIDTHS}"]
    trials = plan(Registry(), Request(["aot"], ["bigram"], model_options=options, seeds=tuple(range(SEEDS))))
    rng = np.random.default_rng(0)
    for number, trial in enumerate(trials):
        path = store.path(trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(of_trial(trial, number // SEEDS, rng).to_json(), encoding="utf-8")
    return len(trials)


def of_trial(trial: Trial, number: int, rng: np.random.Generator) -> Record:
    made, shared = record(number, trial.seed, rng), np.random.default_rng(number)
    bounds = [bound(place, float((rng if place < FOR_EACH_SEED else shared).random())) for place in range(30)]
    parts = {
        "architecture": (trial.architecture, trial.config),
        "task": (trial.task, trial.task_config),
        "protocol": (trial.protocol, trial.protocol_config),
    }
    said = {
        name: {**getattr(made, name), "name": item.name, "version": item.version, "distribution": "membench",
               "config": to_dict(config)}
        for name, (item, config) in parts.items()
    }  # fmt: skip
    said["task"]["data_sha256"] = f"{trial.seed:064x}"
    return replace(made, id=trial.id, bounds=bounds, **said)  # type: ignore[arg-type]


def measure(words: list[str]) -> tuple[float, float]:
    """CPU seconds and MiB of one command."""
    with subprocess.Popen([sys.executable, "-m", "membench.cli", *words], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"membench {' '.join(words)}: exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000, help=f"a multiple of {WIDTHS}, with {SEEDS} seeds each")
    parser.add_argument("--folder", type=Path, help="keep the records here, and use those that are there")
    parser.add_argument("--packed", action="store_true", help="only a board of the pack")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = given.folder or Path(temporary)
        files, packed = root / "files", root / "packed"
        if not files.exists():
            print(f"{write(Store(files), given.points):,} records written")
        if not packed.exists():
            seconds, memory = measure(["results", "pack", str(files), "--out", str(packed / "all.jsonl")])
            print(f"{'pack them':<20} {seconds:7.1f} s {memory:7.0f} MiB")
        if given.packed:
            seconds, memory = measure(["leaderboard", str(packed), "--no-published"])
            print(f"{'leaderboard, a pack':<20} {seconds:7.1f} s {memory:7.0f} MiB")
            return
        commands = {
            "leaderboard": lambda folder: ["leaderboard", folder, "--no-published"],
            "run --dry-run": lambda folder: ["run", *grid(given.points), "--out", folder, "--dry-run"],
            "run, all found": lambda folder: ["run", *grid(given.points), "--out", folder],
        }
        print(f"{'':<20} {'files':>21} {'a pack':>21}   ratio")
        for name, words in commands.items():
            (slow, large), (fast, small) = (measure(words(str(folder))) for folder in (files, packed))
            ratio = f"{slow / fast:5.1f} {large / small:5.1f}"
            print(f"{name:<20} {slow:7.1f} s {large:7.0f} MiB {fast:7.1f} s {small:7.0f} MiB   {ratio}", flush=True)


if __name__ == "__main__":
    main()
