"""Fused training of MLP transformers with one layer; the steps themselves are in kernel.cpp."""

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
from membench_mlp_transformer.model import Layer, MLPTransformer

SOURCE = Path(__file__).with_suffix(".cpp")
BLOCK = 64  # contexts at once: what the neurons say of them stays in the cache


class Shape(ctypes.Structure):
    """The `Shape` of kernel.cpp."""

    _fields_ = (
        ("vocab", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("answers", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("neurons", ctypes.c_int64),
        ("bias", ctypes.c_int32),
        ("skip_position", ctypes.c_int32),
        ("factor", ctypes.c_float),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of an MLPTransformer with one layer."""
    shape = _shape(modules, facts)
    layout = Layout(modules[0], _sections(bool(shape.bias)))
    return FusedTrainer(library(SOURCE), shape, layout, modules, facts, betas, block=BLOCK)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, MLPTransformer):
        raise NotApplicable(f"the kernel trains MLPTransformer, not {type(model).__name__}")
    vocab, d = model.word.weight.shape
    length, answers = len(model.position.weight), len(model.unembed.weight)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    if len(model.layers) != 1:
        raise NotApplicable(f"the kernel trains one layer, not layers={len(model.layers)}")
    layer = cast("Layer", model.layers[0])
    bias = layer.hidden.bias is not None
    return Shape(vocab, length, answers, d, len(layer.hidden.weight), bias, model.skip_position, layer.factor)


def _sections(bias: bool) -> list[Section]:
    """The parameters in the order of kernel.cpp: tokens, answers and neurons come last, where they are padded."""
    return [
        Section("word.weight", (1, 0)),
        Section("position.weight", (0, 1)),
        Section("layers.0.query", (0, 1)),
        Section("layers.0.key", (0, 1)),
        Section("layers.0.value", (0, 1)),
        Section("layers.0.output", (0, 1)),
        Section("layers.0.hidden.weight", (1, 0)),
        *([Section("layers.0.hidden.bias", (0,))] if bias else []),
        Section("layers.0.project.weight", (0, 1)),
        Section("unembed.weight", (1, 0)),
    ]
