"""The protocol `quick`: one short round, for smoke tests and demos."""

from __future__ import annotations

from collections.abc import Sequence

from membench.engine.protocols import converged_v1
from membench.engine.protocols.protocol import Converged, Quick
from membench.engine.workbench import Outcome, Workbench


def find_weights(bench: Workbench, config: Quick, seeds: Sequence[int]) -> list[Outcome]:
    return converged_v1.find_weights(
        bench, Converged(steps=config.steps, rounds=1, lr=config.lr, beta1=0.95, beta2=0.95), seeds
    )
