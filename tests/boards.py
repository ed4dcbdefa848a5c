"""Boards made by hand, for the tests of the page: the real way from records to data, without training."""

from __future__ import annotations

import copy
import hashlib
import random
from typing import Any

import pandas as pd
from samples import FACTS, make_record

from membench.records.record import Record
from membench_leaderboard.data import board_data
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise
from membench_leaderboard.tracks import TRACKS

HOSTILE = "<script>alert(1)</script>"
QUICK = {"name": "quick", "version": 1, "config": {}, "label": ""}
PLAIN = {"name": "bigram", "version": 1, "config": {"N": 50, "T0": 2500}, "label": "N=50 T0=2500", **FACTS}
NOISY = {"name": "low-entropy", "version": 1, "config": {"N": 50, "T0": 2500}, "label": "N=50 T0=2500 p=0.1",
         **FACTS, "kind": "distribution"}  # fmt: skip
BOUNDS = (
    *make_record().bounds,
    {"name": "theorem-1", "quantity": "associations", "direction": "lower", "value": 200.0, "reason": None},
)
BAYES = {"name": "bayes", "quantity": "accuracy", "direction": "reference", "value": 0.9, "reason": None}


def trials(name: str, size: int, accuracy: float, seeds: int = 3, **changes: Any) -> list[Record]:
    """One point of the grid, whose seeds differ a little."""
    width = size // 100
    fields: dict[str, Any] = {
        "id": hashlib.sha256(repr((name, size, changes)).encode()).hexdigest()[:12],
        "architecture": {"name": name, "config": {"d": width}, "label": f"d={width}"},
        "task": PLAIN,
        "size": {
            "parameters": size,
            "without_embeddings": size // 2,
            "buffers": 0,
            "active": size - 90 * len(name) // 9,
        },
        "run": {"cpu_seconds": size / 100},
        "bounds": list(BOUNDS),
        "environment": {"membench": "0.1.0"},
    }
    return [
        make_record(**{**fields, **changes}, seed=seed, metrics=_metrics(size, accuracy + 0.004 * seed))
        for seed in range(seeds)
    ]


def _metrics(size: int, accuracy: float) -> dict[str, float]:
    bits = 9000 * accuracy
    return {
        "accuracy": accuracy,
        "kl": 3 * (1 - accuracy),
        "associations": 2500 * accuracy,
        "bits": bits,
        "bits_per_parameter": bits / size,
    }


def sample_records() -> list[Record]:
    """A ranked table, one that divergence sorts, and one that is not ranked; and somebody's nasty name."""
    found = [
        *trials("aot", 800, 0.31), *trials("aot", 3200, 0.62), *trials("aot", 12800, 0.93),
        *trials("mlp-transformer", 1000, 0.25), *trials("mlp-transformer", 4000, 0.71),
        *trials(HOSTILE, 2000, 0.45),
        *trials("aot", 1600, 0.2, protocol=QUICK), *trials("linear-memory", 900, 0.3, protocol=QUICK),
    ]  # fmt: skip
    for name, size, accuracy in (("aot", 900, 0.5), ("aot", 3600, 0.7), ("lookup", 5000, 0.88)):
        found += trials(name, size, accuracy, task=NOISY, bounds=[*BOUNDS, BAYES])
    return found


def sample_rows() -> pd.DataFrame:
    return summarise(to_frame(sample_records()))


def sample_board() -> dict[str, Any]:
    return board_data(sample_records())


def track_records(names: tuple[str, ...] = ("aot", "lookup", "mlp-transformer")) -> list[Record]:
    """Every size of every track but the searches, made up so that the architectures differ."""
    found = []
    for track in TRACKS.values():
        if track.searched:
            continue
        for place, name in enumerate(names):
            for task in track.tasks:
                for number, size in enumerate(track.sizes):
                    reached = (number + 1 + place / len(names)) / (len(track.sizes) + 2)
                    found += trials(
                        name, round(size * 0.97), reached,
                        task={"name": task.task, "version": 1, "config": {}, "label": task.config, **FACTS,
                              "kind": "distribution" if track.score == "share" else "association"},
                        protocol={"name": track.protocol, "version": 2, "config": {}, "label": track.protocol_config},
                    )  # fmt: skip
    return found


def track_board(names: tuple[str, ...] = ("aot", "lookup", "mlp-transformer")) -> dict[str, Any]:
    return board_data(track_records(names))


def full_board(architectures: int = 20) -> dict[str, Any]:
    """Every track and two tables with this many architectures, as data: made up, but as long as real ones."""
    rng = random.Random(0)
    names = [f"architecture-{number:02}" for number in range(architectures)]
    made = track_board(tuple(names))
    made["tracks"].insert(0, {**copy.deepcopy(made["tracks"][0]), "track": "efficiency", "sizes": [1000, 3000, 10000]})
    for track in made["tracks"]:
        for place, row in enumerate(track["rows"]):
            row |= {"facts_of_limit": rng.random(), "verification": "verified, unsigned", "origin": "trained"}
            for task, told in row["tasks"].items():
                told["sizes"] = [_real(cell, size // (41 + place), task, track["track"], rng)
                                 for cell, size in zip(told["sizes"], track["sizes"], strict=False)]  # fmt: skip
                told["facts_of_limit"] = rng.random()
    records = [one for task in (PLAIN, NOISY) for name in names for size in (3000, 10_000, 30_000)
               for one in trials(name, size - rng.randint(0, 99), rng.random() * 0.9, task=task)]  # fmt: skip
    about = {
        "summary": "heads and a residual stream, without an MLP",
        "reference": "Somebody and others, 'Title', 2024",
    }
    return {**made, "tables": board_data(records)["tables"], "architectures": dict.fromkeys(names, about)}


def _real(cell: dict[str, Any], width: int, task: str, track: str, rng: random.Random) -> dict[str, Any]:
    """A model with all that is said of one, each number as long as a measured one, and its command."""
    value, width = rng.random(), width + (task == "ngram")
    config = f"d={width} d_h=2 H={width // 3} layers=1"
    facts, more = 1291, ()
    if track == "efficiency":
        facts, more = rng.randint(100, 9999), ("all_right", "peak", "facts")
    command = (
        f"membench run --model aot --task {task} -M d={width} -M H={width // 3} -T N=64 -T T0={facts} "
        "-P steps=300 -P rounds=3 --seeds 5"
    )
    drawn = {key: rng.random() for key in ("bits_per_stored_bit", "cpu_seconds", *more)}
    costs = {"parameters": width * 41, "without_embeddings": width * 27, "storage_bits": width * 41 * 32,
             "active": width * 35, "flops": width**2, "state": width, "code_bytes": 21161}  # fmt: skip
    return {**cell, "value": value, "low": value * 0.97, "high": value * 1.03, "config": config, **drawn, **costs,
            "command": command, "id": f"{rng.getrandbits(48):012x}"}  # fmt: skip
