"""What a trial costs beside its training: tiny trials, on each executor.

    python benchmarks/executors.py                   local, inline and, if it is installed, ray; about a minute
    python benchmarks/executors.py --trials 2000

A trial is one step of a lookup table on sixteen facts, in groups of five seeds: nearly all of its time is making,
measuring, handing over and writing. Workers are warm: each executor first runs as many jobs as it has workers. CPU
seconds are of all processes below this one, and hold on a machine that is shared; wall seconds need an idle one. Linux
only, because it reads /proc.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.records.store import Store

TICKS = os.sysconf("SC_CLK_TCK")


def run(registry: Registry, executor: str, seeds: int) -> None:
    request = Request(["lookup"], ["bigram"], (), ["N=4"], "quick", ["steps=1"], seeds=tuple(range(seeds)))
    execution = Execution(executor=executor, jobs=1)
    with tempfile.TemporaryDirectory() as folder:
        records = execute(plan(registry, request), Store(Path(folder)), registry, execution)
    assert all(record.complete for record in records), records[0].error


def processor_seconds() -> tuple[float, float]:
    """Of this process, and of all processes below it, with those of them that have ended."""
    times, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        process = int(path.parent.name)
        parents[process], times[process] = int(fields[1]), [int(field) / TICKS for field in fields[11:15]]
    below = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    own = sum(times[os.getpid()][:2])
    return own, sum(sum(times[process]) for process in below) - own


def row(registry: Registry, executor: str, trials: int) -> list[object]:
    start = time.perf_counter()
    run(registry, executor, 1)
    first = time.perf_counter() - start
    run(registry, executor, 50)
    own, below = processor_seconds()
    start = time.perf_counter()
    run(registry, executor, trials)
    wall = time.perf_counter() - start
    own, below = (after - before for after, before in zip(processor_seconds(), (own, below), strict=True))
    return [executor, *(f"{1000 * seconds / trials:.1f}" for seconds in (wall, own, below)), f"{first:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    registry = Registry()
    executors = ["local", "inline", *(["ray"] if importlib.util.find_spec("ray") else [])]
    headers = ["one worker", "ms per trial", "CPU ms of the driver", "CPU ms of the rest", "first trial, s"]
    rows = [row(registry, executor, trials) for executor in executors]
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True))
    print(f"{trials} trials; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
