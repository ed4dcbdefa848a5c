"""For pytest: the fixture `assert_capacity`.

Every pytest run loads this where membench is installed. So it imports nothing but pytest until a
test asks for the fixture, and even then torch is left to worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from membench.records.record import Record
    from membench.verbs.arguments import Model, Options


@pytest.fixture
def assert_capacity(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., float]:
    """A function that measures an architecture and fails the test if it holds less than it should."""

    def check(
        model: Model,
        *,
        task: str,
        at_least: float | None = None,
        at_most: float | None = None,
        metric: str = "accuracy",
        M: Options = None,
        T: Options = None,
        P: Options = None,
        protocol: str = "quick",
        seeds: int | Sequence[int] = 5,
        plugins: Sequence[str | Path] = (),
    ) -> float:
        """The mean of `metric` over the seeds. The other words are those of `membench.run`."""
        __tracebackhide__ = True
        if at_least is None and at_most is None:
            raise ValueError("assert_capacity needs at_least, or at_most for a metric such as kl")
        import membench

        folder = tmp_path_factory.mktemp("membench")
        results = membench.run(
            model, task, M=M, T=T, P=P, protocol=protocol, seeds=seeds, out=folder, plugins=plugins, progress=False
        )
        title = f"{model if isinstance(model, str) else model.__name__} on {task}"
        return _judge(results.records, title, metric, at_least, at_most)

    return check


def _judge(records: Sequence[Record], title: str, metric: str, at_least: float | None, at_most: float | None) -> float:
    __tracebackhide__ = True
    failed = [record for record in records if not record.complete]
    if failed:
        pytest.fail(f"{title}: seed {failed[0].seed} failed: {failed[0].error}", pytrace=False)
    values = {record.seed: record.metrics.get(metric) for record in sorted(records, key=lambda one: one.seed)}
    numbers = [value for value in values.values() if value is not None]
    if not numbers or len(numbers) < len(values):
        known = ", ".join(records[0].metrics)
        pytest.fail(f"{title}: there is no number for {metric}; there are: {known}", pytrace=False)
    mean = sum(numbers) / len(numbers)
    by_seed = ", ".join(f"seed {seed}: {value:.4f}" for seed, value in values.items() if value is not None)
    for bound, words, broken in ((at_least, "at least", -1), (at_most, "at most", 1)):
        if bound is not None and broken * (mean - bound) > 0:
            pytest.fail(f"{title}: {metric} is {mean:.4f}, but {words} {bound:g} is needed ({by_seed})", pytrace=False)
    return mean
