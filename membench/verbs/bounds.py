"""`membench.bounds`: what is proven of an architecture on a task; nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence

from membench.analysis.bounds_table import Bounds
from membench.execute.progress import counting
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.verbs.arguments import Model, Options, Paths, load_registry, model_of, say, seeds_of, texts_of


def bounds(
    model: Model,
    task: str,
    *,
    M: Options = None,
    T: Options = None,
    seed: int = 0,
    expensive: bool = False,
    plugins: Paths = (),
    block: Sequence[str] = (),
    progress: bool = True,
) -> Bounds:
    """Every bound that speaks of an architecture on a task, as `membench bounds` shows them.

    `frame` of what comes back has one row for each bound at each point of the grid. With `expensive` there are also
    those that take seconds: floors and optimised frames.
    """
    registry = load_registry(plugins, block)
    name = model_of(model, registry)
    return evaluate(registry, name, task, texts_of(M), texts_of(T), seed=seed, expensive=expensive, show=progress)


def evaluate(
    registry: Registry,
    model: str,
    task: str,
    model_options: Sequence[str],
    task_options: Sequence[str],
    *,
    seed: int = 0,
    expensive: bool = False,
    show: bool = True,
) -> Bounds:
    """Of one architecture on one task: bounds of several would not fit one table."""
    architecture = registry.architecture(model)
    trials = plan(
        registry, Request([model], [registry.task(task).name], model_options, task_options, seeds=seeds_of([seed]))
    )
    with counting(len(trials), "points", show) as advance:
        evaluated = Bounds.of(registry, trials, expensive=expensive, advance=advance)
    if evaluated.are_general:
        say(f"no bound is specific to '{architecture.name}'; these hold for every model")
    return evaluated
