"""Baselines: what a suite measured once, in one small file that is committed beside the code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from membench import __version__
from membench.errors import UsageError
from membench.measure.metrics import GATED
from membench.records.files import make_parent, write_named
from membench.regress.compare import SAME_NUMBERS, Sample
from membench.regress.suite import Suite

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The samples of a suite, and what was asked for."""

    suite: str
    suite_version: int
    models: tuple[str, ...]  # the architectures that were asked for; none: all of the suite
    seeds: tuple[int, ...]
    samples: tuple[Sample, ...]
    git: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line for each point, so that a diff shows which ones changed."""
        head = {
            "schema": SCHEMA,
            "suite": self.suite,
            "suite_version": self.suite_version,
            "membench": __version__,
            "git": self.git,
            "models": list(self.models),
            "seeds": list(self.seeds),
        }
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        points = ",\n".join(f"  {json.dumps(asdict(sample), allow_nan=False)}" for sample in self.samples)
        return "{\n" + ",\n".join(lines) + ',\n"points": [\n' + points + "\n]}\n"


def default_path(suite: Suite) -> Path:
    return Path("baselines") / f"{suite.name}.json"


def write_baseline(path: Path, baseline: Baseline) -> None:
    make_parent(path, "baseline")
    write_named(path, baseline.to_json(), what="baseline")


def read_baseline(path: Path, suite: Suite) -> Baseline:
    """UsageError, with what to do, for a file that is not a whole baseline of this very suite."""
    again = f"write a new one with: membench baseline write --suite {suite.source}"
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read baseline '{path}': {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"baseline '{path}' is not a whole JSON file ({error}); {again}") from None
    if not isinstance(data, dict) or type(data.get("schema")) is not int:
        raise UsageError(f"'{path}' is not a membench baseline; {again}")
    if data["schema"] > SCHEMA:
        newer = f"has schema {data['schema']}, but this membench reads up to {SCHEMA}"
        raise UsageError(f"baseline '{path}' {newer}; upgrade membench")
    try:
        baseline = _baseline(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"baseline '{path}' is damaged ({type(error).__name__}: {error}); {again}") from None
    _check_suite(path, baseline, suite, again)
    return baseline


def _check_suite(path: Path, baseline: Baseline, suite: Suite, again: str) -> None:
    if baseline.suite != suite.name:
        raise UsageError(f"baseline '{path}' belongs to suite '{baseline.suite}', not to '{suite.name}'; {again}")
    if baseline.suite_version != suite.version:
        raise UsageError(
            f"baseline '{path}' belongs to version {baseline.suite_version} of suite '{suite.name}', "
            f"which is now at version {suite.version}; {again}"
        )


def _baseline(data: dict[str, Any]) -> Baseline:
    return Baseline(
        suite=str(data["suite"]),
        suite_version=_whole(data["suite_version"]),
        models=tuple(str(name) for name in data["models"]),
        seeds=tuple(map(_whole, data["seeds"])),
        samples=tuple(_sample(point) for point in data["points"]),
        git=dict(data.get("git", {})),
    )


def _sample(point: dict[str, Any]) -> Sample:
    seeds = tuple(map(_whole, point["seeds"]))
    return Sample(
        **{name: str(point[name]) for name in ("id", "architecture", "config", "task", "protocol")},
        seeds=seeds,
        metrics={name: _column(name, point["metrics"][name], len(seeds)) for name in GATED if name in point["metrics"]},
        facts=tuple(point["facts"]),
        environment={name: point["environment"].get(name) for name in SAME_NUMBERS},
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _column(name: str, values: Sequence[Any], length: int) -> tuple[float | None, ...]:
    if len(values) != length:
        raise ValueError(f"{name} has {len(values)} numbers for {length} seeds")
    return tuple(None if value is None else float(value) for value in values)
