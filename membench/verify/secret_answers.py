"""Answers that no seed gives: each context's are turned by a number of the operating system's own randomness, or where
answers depend on each other, dealt to the contexts anew by these numbers.

A model that finds the seed of its facts while it is trained could keep that and draw the facts again. Turned facts
cannot be drawn again, so whatever a model knows of them is in its weights.
"""

from __future__ import annotations

import copy
import secrets
from dataclasses import replace
from typing import Any

import numpy as np

from membench.interface.declarations import Task
from membench.interface.facts import Facts
from membench.interface.registry import Registry

STRUCTURED = frozenset(
    {"almost-low-rank"}
)  # whose answers depend on each other: turned one by one, they would be harder
_NUMBER = np.dtype("<u4")


def draw_turns(contexts: int) -> bytes:
    """A number for each context."""
    return secrets.token_bytes(contexts * _NUMBER.itemsize)


def turned(task: str, facts: Facts, turns: bytes) -> Facts:
    """The same facts with the answers of each context moved on cyclically by its number, or with those of another."""
    if not turns:
        return facts
    numbers = np.frombuffer(turns, _NUMBER)[: len(facts)]
    if task in STRUCTURED:
        return replace(facts, targets=facts.targets[np.argsort(numbers, kind="stable")])
    steps = numbers.astype(np.int64) % facts.answers
    if facts.is_association:
        return replace(facts, targets=(facts.targets + steps) % facts.answers)
    places = (np.arange(facts.answers) - steps[:, None]) % facts.answers
    return replace(facts, targets=np.take_along_axis(facts.targets, places, axis=1))


def with_turned_task(registry: Registry, name: str, turns: bytes) -> Registry:
    """The same registry, in which this task draws turned facts."""
    changed = copy.copy(registry)
    changed.plugins = [
        replace(plugin, tasks=tuple(_turning(task, turns) if task.name == name else task for task in plugin.tasks))
        for plugin in registry.plugins
    ]
    return changed


def _turning(task: Task[Any], turns: bytes) -> Task[Any]:
    return replace(task, sample=lambda config, rng: turned(task.name, task.sample(config, rng), turns))
