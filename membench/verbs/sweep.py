"""What `membench sweep` does: the trials of `membench run`, in random order."""

from __future__ import annotations

from pathlib import Path

from membench.engine.execution import Execution
from membench.execute.run import Run
from membench.interface.registry import Registry
from membench.plan.request import Request
from membench.plan.shard import Shard
from membench.verbs.run import prepare as prepare_run


def prepare(registry: Registry, request: Request, execution: Execution, out: Path, shard: Shard | None = None) -> Run:
    """All mistakes are found here, before anything runs; `membench.verbs.run.carry_out` runs it."""
    return prepare_run(registry, request, execution, out, shuffle=True, shard=shard)
