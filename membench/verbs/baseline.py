"""What `membench baseline write` does: a suite is measured, and becomes the baseline of later measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from membench.engine.execution import Execution
from membench.interface.registry import Registry
from membench.regress.gate import Gate


@dataclass(frozen=True)
class Written:
    """The baseline that is there now."""

    path: Path
    points: int
    trials: int


def write(
    suite: str,
    registry: Registry,
    execution: Execution,
    *,
    path: Path | None = None,
    models: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    out: Path | None = None,
    show: bool = True,
) -> Written:
    """Measure a suite and write its baseline, over one that is there; with failed trials, none is written."""
    gate = Gate.of(registry, suite, path=path, models=models, seeds=seeds, compared=False)
    baseline = gate.write(execution, out, show)
    return Written(gate.path, len(baseline.samples), len(gate.plan.trials))
