"""Weights in closed form: every slot answers what most of its contexts want."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from membench.api import Facts, NotApplicable
from membench_hashed_ngram.bounds import wanted
from membench_hashed_ngram.model import HashedNgram


def majority(model: HashedNgram, facts: Facts) -> Mapping[str, Any]:
    """Answers on a circle: the row of a slot is the vector of its answer, which no other vector agrees with as much."""
    hashes, M, d = model.tables.shape
    if hashes > 1:
        raise NotApplicable(f"it fills one table, not hashes={hashes}")
    if d < 2:
        raise NotApplicable("it puts answers on a circle, which takes d=2 or more, not d=1")
    angles = 2 * math.pi * torch.arange(facts.answers, dtype=torch.float64) / facts.answers
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)  # [A, 2]
    slots, weights = wanted(facts, hashes, M)
    with torch.no_grad():
        model.unembed.weight.zero_()
        model.unembed.weight[:, :2] = circle
        model.tables.zero_()
        model.tables[0, torch.from_numpy(slots[:, 0]), :2] = circle[torch.from_numpy(weights.argmax(axis=1))]
    return {"slots": M, "used": len(slots)}
