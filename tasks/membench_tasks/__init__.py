"""The built-in tasks: random look-up tables, distributions whose entropy or rank is known, and real facts and text."""

from __future__ import annotations

from typing import Any

from membench.api import Task, hookimpl
from membench_tasks.almost_low_rank import ALMOST_LOW_RANK
from membench_tasks.bigram import BIGRAM
from membench_tasks.facts import FACTS
from membench_tasks.geometric import GEOMETRIC
from membench_tasks.low_entropy import LOW_ENTROPY
from membench_tasks.ngram import NGRAM
from membench_tasks.recall import RECALL
from membench_tasks.text import TEXT
from membench_tasks.world import WORLD


@hookimpl
def membench_tasks() -> list[Task[Any]]:
    return [BIGRAM, NGRAM, LOW_ENTROPY, GEOMETRIC, ALMOST_LOW_RANK, RECALL, FACTS, WORLD, TEXT]
