"""The protocol `converged` as it was in version 1: cross-entropy alone. Kept because records of it exist.

It stops on the accuracy before an update and keeps the weights after it, which may have lost a fact or two again.
"""

from __future__ import annotations

from collections.abc import Sequence

from membench.engine.protocols import converged
from membench.engine.protocols.protocol import Converged
from membench.engine.workbench import Outcome, Workbench


def probe(bench: Workbench, config: Converged, part: int) -> list[float]:
    return converged.probe(bench, config, part, finishes=False)


def find_weights(bench: Workbench, config: Converged, seeds: Sequence[int]) -> list[Outcome]:
    replicas, choice = converged.least_loss(bench, config, seeds, finishes=False)
    return [
        bench.outcome(one.seed, one.best.state, trace=converged.first_trace(one, choice))
        for one in replicas
        if one.best
    ]
