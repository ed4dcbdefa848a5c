"""Fused training of attention-only transformers; the steps themselves are in kernel.cpp."""

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
        ("layers", ctypes.c_int64),
        ("compressed", ctypes.c_int32),
        ("one_projection", ctypes.c_int32),
        ("skip_position", ctypes.c_int32),
        ("factor", ctypes.c_float),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of an AttentionOnly with at least one head, and with one layer or two positions."""
    shape = _shape(modules, facts)
    layout = Layout(modules[0], _sections(shape))
    return FusedTrainer(library(SOURCE), shape, layout, modules, facts, betas, by_pairs=True)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, AttentionOnly):
        raise NotApplicable(f"the kernel trains AttentionOnly, not {type(model).__name__}")
    layers, layer = len(model.layers), cast("Heads", model.layers[0])
    heads, d_h, inner = layer.query.shape
    if heads == 0:
        raise NotApplicable("the kernel needs at least one head, not H=0")
    vocab, d = model.word.weight.shape
    length, answers = len(model.position.weight), len(model.unembed.weight)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    if layers > 1 and length != 2:
        raise NotApplicable(f"the kernel trains several layers for S=2, not layers={layers} for S={length}")
    one_projection = model.compress is not None
    compressed = one_projection or layer.compress is not None
    if compressed and model.skip_position:
        raise NotApplicable("the kernel keeps the position out of the residual stream when heads share a projection")
    sizes = vocab, length, answers, d, inner, d_h, heads, layers
    return Shape(*sizes, compressed, one_projection, model.skip_position, layer.factor)


def _sections(shape: Shape) -> list[Section]:
    """The parameters in the order of kernel.cpp: tokens, answers and heads come last, where they are padded."""
    sections = [Section("word.weight", (1, 0)), Section("position.weight", (0, 1))]
    for layer in range(shape.layers):
        place = f"layers.{layer}."
        sections += [
            Section(f"{place}query", (1, 2, 0)),
            Section(f"{place}key", (1, 2, 0)),
            Section(f"{place}value", (1, 2, 0)),
            Section(f"{place}output", (2, 1, 0)),
        ]
        if shape.compressed and not (shape.one_projection and layer > 0):
            holder = "" if shape.one_projection else place
            sections += [Section(f"{holder}compress", (1, 0)), Section(f"{holder}decompress", (0, 1))]
    return [*sections, Section("unembed.weight", (1, 0))]
