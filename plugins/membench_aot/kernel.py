"""Fused training of attention-only transformers with one layer; the steps themselves are in kernel.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from membench.api import Facts, NotApplicable
from membench.kernels import FusedTrainer, Layout, Section, Trainer, library, require_plain
from membench_aot.model import AttentionOnly, Heads

SOURCE = Path(__file__).with_suffix(".cpp")


class Shape(ctypes.Structure):
    """The `Shape` of kernel.cpp."""

    _fields_ = (
        ("vocab", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("answers", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("d_h", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("compressed", ctypes.c_int32),
        ("skip_position", ctypes.c_int32),
        ("factor", ctypes.c_float),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of an AttentionOnly with one layer and at least one head."""
    shape = _shape(modules, facts)
    layout = Layout(modules[0], _sections(cast("AttentionOnly", modules[0])))
    return FusedTrainer(library(SOURCE), shape, layout, modules, facts, betas, by_pairs=True)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, AttentionOnly):
        raise NotApplicable(f"the kernel trains AttentionOnly, not {type(model).__name__}")
    if len(model.layers) != 1:
        raise NotApplicable(f"the kernel trains one layer, not layers={len(model.layers)}")
    layer = cast("Heads", model.layers[0])
    heads, d_h, inner = layer.query.shape
    if heads == 0:
        raise NotApplicable("the kernel needs at least one head, not H=0")
    vocab, d = model.word.weight.shape
    length, answers = len(model.position.weight), len(model.unembed.weight)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    compressed = _projection(model) is not None
    if compressed and model.skip_position:
        raise NotApplicable("the kernel keeps the position out of the residual stream when heads share a projection")
    return Shape(vocab, length, answers, d, inner, d_h, heads, compressed, model.skip_position, layer.factor)


def _projection(model: AttentionOnly) -> str | None:
    """What the names of the projection that heads share begin with, or None if there is none."""
    if model.compress is not None:
        return ""
    return None if cast("Heads", model.layers[0]).compress is None else "layers.0."


def _sections(model: AttentionOnly) -> list[Section]:
    """The parameters in the order of kernel.cpp: tokens, answers and heads come last, where they are padded."""
    place = _projection(model)
    shared = [] if place is None else [Section(f"{place}compress", (1, 0)), Section(f"{place}decompress", (0, 1))]
    return [
        Section("word.weight", (1, 0)),
        Section("position.weight", (0, 1)),
        Section("layers.0.query", (1, 2, 0)),
        Section("layers.0.key", (1, 2, 0)),
        Section("layers.0.value", (1, 2, 0)),
        Section("layers.0.output", (2, 1, 0)),
        *shared,
        Section("unembed.weight", (1, 0)),
    ]
