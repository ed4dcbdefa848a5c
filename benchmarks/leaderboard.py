"""How long a leaderboard of many records takes: reading, the frame, and the scores.

    python benchmarks/leaderboard.py                 10,000 made-up records of 2,000 models
    python benchmarks/leaderboard.py --records 1000

The records have the parts and the length of real ones (thirty bounds, the curve of a training); their numbers are
drawn. CPU time, the best of three: the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from membench.records.record import Record
from membench_leaderboard.data import board_data
from membench_leaderboard.frame import to_frame
from membench_leaderboard.gather import gather, no_collection
from membench_leaderboard.rows import summarise, tables
from membench_leaderboard.scores import standings

T = TypeVar("T")
ARCHITECTURES = ("one", "two", "three", "four", "five")
SEEDS, TASKS, BOUNDS = 5, 10, 30


def record(number: int, seed: int, rng: np.random.Generator) -> Record:
    task, size, accuracy = number % TASKS, 500 * (1 + number // 50), float(rng.random())
    return Record(
        id=f"{number:012x}",
        seed=seed,
        status="complete",
        architecture={"name": ARCHITECTURES[number % 5], "distribution": "made up", "version": "0", "commit": None,
                      "config": {"d": number}, "label": f"d={number}"},
        task={"name": f"task-{task}", "version": 1, "config": {"N": 50, "T0": 2500}, "label": "N=50 T0=2500",
              "data_sha256": "0" * 64},
        protocol={"name": "converged", "version": 1, "config": {"steps": 1000, "rounds": 5}, "label": ""},
        metrics={"accuracy": accuracy, "kl": 4 * (1 - accuracy), "associations": 2500 * accuracy,
                 "bits": 9000 * accuracy, "bits_per_parameter": 9000 * accuracy / size},
        size={"parameters": size, "without_embeddings": size // 2, "buffers": 0},
        bounds=[bound(place, float(rng.random())) for place in range(BOUNDS)],
        trace={"converged": True, "rounds": [{"steps": 1000, "curve": rng.random(40).round(6).tolist()}]},
        environment={"membench": "0", "python": "3", "torch": "2", "cpu": "some", "threads": 1, "device": "cpu"},
        run={"started": "2026-01-01T00:00:00+00:00", "seconds": 1.5, "replicas": 5},
    )  # fmt: skip


def bound(place: int, value: float) -> dict[str, Any]:
    name = ("chance", "zero-head", "bayes", "support")[place] if place < 4 else f"bound-{place}"
    value = {"chance": 0.02, "bayes": 1.0, "support": 2500.0}.get(name, value)
    silent = place % 3 == 0
    return {"name": name, "quantity": "accuracy", "direction": "lower" if place % 2 else "baseline", "value": value,
            "reason": "does not apply: the theorem's heads have projections of their own" if silent else None,
            "status": "does not apply" if silent else "applies", "expected": False, "restricted_to": None}  # fmt: skip


def write(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(count // SEEDS):
        for seed in range(SEEDS):
            one = record(number, seed, rng)
            path = folder / one.task["name"] / one.architecture["name"] / f"{one.id}-s{seed}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one.to_json(), encoding="utf-8")


def timed(words: str, work: Callable[[], T], repeats: int = 3) -> tuple[T, float]:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        outcome = work()
        times.append(time.process_time() - start)
    print(f"{words:<44} {min(times):6.2f} s")
    return outcome, min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    count = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder, no_collection():
        write(Path(folder), count)
        texts = [path.read_text("utf-8") for path in Path(folder).rglob("*.json")]
        timed("json.loads of their texts, to compare with", lambda: [json.loads(text) for text in texts])
        (entries, _), reading = timed(f"read {count:,} records", lambda: gather([Path(folder)], published=False))
        frame, framing = timed("to a frame", lambda: to_frame(entries))
        rows, scoring = timed("means and intervals of models", lambda: summarise(frame))
        _, ranking = timed("ranks, and scores of architectures", lambda: [standings(table) for table in tables(rows)])
        print(f"{'read and ranked':<44} {reading + framing + scoring + ranking:6.2f} s")
        timed("all as plain data, with commands", lambda: board_data(entries, rows))


if __name__ == "__main__":
    main()
