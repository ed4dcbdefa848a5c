"""The built-in tasks: random look-up tables, and distributions whose entropy or rank is known."""

from __future__ import annotations

from typing import Any

from membench.api import Task, hookimpl
from membench_tasks.almost_low_rank import ALMOST_LOW_RANK
from membench_tasks.bigram import BIGRAM
from membench_tasks.geometric import GEOMETRIC
from membench_tasks.low_entropy import LOW_ENTROPY
from membench_tasks.ngram import NGRAM


@hookimpl
def membench_tasks() -> list[Task[Any]]:
    return [BIGRAM, NGRAM, LOW_ENTROPY, GEOMETRIC, ALMOST_LOW_RANK]
