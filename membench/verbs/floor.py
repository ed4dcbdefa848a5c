"""`membench.floor`: the best divergence of logits of rank d on a task, as an interval."""

from __future__ import annotations

from collections.abc import Sequence

from membench.analysis.floor_table import Floor
from membench.execute.progress import counting
from membench.verbs.arguments import Options, Paths, load_registry, texts_of


def floor(
    task: str,
    *,
    T: Options = None,
    M: Options = None,
    seed: int = 0,
    starts: int = 8,
    plugins: Paths = (),
    block: Sequence[str] = (),
    progress: bool = True,
) -> Floor:
    """Bracket the best divergence of logits of rank d, as `membench floor` does: M={"d": range(1, 10)}."""
    result = Floor.of(load_registry(plugins, block), task, texts_of(T), texts_of(M), seed=seed, starts=starts)
    descend(result, show=progress)
    return result


def descend(result: Floor, *, show: bool = True) -> None:
    """Fills in one interval after the other; an interruption leaves those that were found."""
    with counting(len(result.dimensions), "dimensions", show) as advance:
        for _ in result.descend():
            advance()
