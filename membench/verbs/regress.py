"""What `membench regress` does: a suite is measured again, and compared with its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from membench.engine.execution import Execution
from membench.interface.registry import Registry
from membench.records.record import Record
from membench.regress.compare import Comparisons
from membench.regress.gate import Gate
from membench.regress.gate import fail_if_any as fail_if_any


@dataclass(frozen=True)
class Regression:
    """How a suite compares with its baseline; nothing compares when there was none."""

    heading: str
    notes: Sequence[str]
    comparisons: Comparisons
    records: Sequence[Record]


def regress(
    suite: str,
    registry: Registry,
    execution: Execution,
    *,
    path: Path | None = None,
    models: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    required: bool = False,
    out: Path | None = None,
    show: bool = True,
) -> Regression:
    """Measure a suite and compare it with its baseline. A missing baseline is written, or refused if required."""
    gate = Gate.of(registry, suite, path=path, models=models, seeds=seeds, required=required)
    checked = gate.check(execution, out, show)
    return Regression(gate.heading, gate.notes, checked.comparisons, checked.records)
