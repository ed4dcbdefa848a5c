"""Probes: the scores that choose a learning rate for all seeds of a point, kept until its trials have their records.

They take minutes for a large model, and an interruption is to cost none that has ended.
"""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from membench.measure.environment import versions_of
from membench.plan.trial import Trial
from membench.records.files import read_regular, write_atomically
from membench.records.record import read_json
from membench.records.store import Store

SUFFIX = ".probes"  # beside the records of the point
MAX_BYTES = 1 << 20


@dataclass
class Probes:
    """Those of one point that have ended, by their part; None for one that failed."""

    path: Path
    code: str  # which code they are of
    wanted: int
    scores: dict[int, list[float] | None] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)  # of a processor

    @classmethod
    def of(cls, store: Store, trial: Trial) -> Probes:
        """With what an interrupted run has left, if it is of the same code."""
        path = store.folder(trial.point) / f"{trial.id}{SUFFIX}"
        found = cls(path, _code_of(trial), trial.protocol.probes)
        with suppress(ValueError):  # there are none, or none that can be read
            found._read()
        return found

    @property
    def are_complete(self) -> bool:
        return len(self.scores) == self.wanted

    def in_order(self) -> list[list[float] | None]:
        return [self.scores[part] for part in sorted(self.scores)]

    def keep(self, part: int, scores: list[float] | None, seconds: float) -> None:
        self.scores[part], self.seconds[part] = scores, seconds
        told = {str(part): scores for part, scores in self.scores.items() if scores is not None}
        if told:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            took = {str(part): self.seconds.get(part, 0.0) for part in self.scores}
            write_atomically(self.path, json.dumps({"code": self.code, "scores": told, "seconds": took}) + "\n")

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        data = read_json(read_regular(self.path, MAX_BYTES).decode())
        if not isinstance(data, dict) or data.get("code") != self.code or not isinstance(data.get("scores"), dict):
            return
        there = [part for part in range(self.wanted) if str(part) in data["scores"]]
        took = data["seconds"] if isinstance(data.get("seconds"), dict) else {}
        scores = {part: _checked(data["scores"][str(part)]) for part in there}
        self.seconds = {part: one for part in there for one in _checked([took.get(str(part), 0.0)])}
        self.scores.update(scores)


def _checked(scores: object) -> list[float]:
    if not isinstance(scores, list) or not all(type(one) in (int, float) and math.isfinite(one) for one in scores):
        raise ValueError("it has scores that are no numbers")
    return [float(one) for one in scores]


def _code_of(trial: Trial) -> str:
    """What a record would say of its code, as one digest."""
    parts: list[Any] = [(item.name, item.version, asdict(item.origin)) for item in (trial.architecture, trial.task)]
    if trial.architecture.packages:
        parts.append(versions_of(trial.architecture.packages))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
