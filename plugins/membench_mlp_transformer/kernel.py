"""Fused training of MLP transformers; the steps themselves are in kernel.cpp."""

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
        ("layers", ctypes.c_int64),
        ("bias", ctypes.c_int32),
        ("skip_position", ctypes.c_int32),
        ("factor", ctypes.c_float),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of an MLPTransformer with one layer or two positions."""
    shape = _shape(modules, facts)
    layout = Layout(modules[0], _sections(shape))
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
    layers, layer = len(model.layers), cast("Layer", model.layers[0])
    if layers > 1 and length != 2:
        raise NotApplicable(f"the kernel trains several layers for S=2, not layers={layers} for S={length}")
    sizes = vocab, length, answers, d, len(layer.hidden.weight), layers
    return Shape(*sizes, layer.hidden.bias is not None, model.skip_position, layer.factor)


def _sections(shape: Shape) -> list[Section]:
    """The parameters in the order of kernel.cpp: tokens, answers and neurons come last, where they are padded."""
    sections = [Section("word.weight", (1, 0)), Section("position.weight", (0, 1))]
    for place in (f"layers.{layer}." for layer in range(shape.layers)):
        sections += [Section(f"{place}{name}", (0, 1)) for name in ("query", "key", "value", "output")]
        sections.append(Section(f"{place}hidden.weight", (1, 0)))
        if shape.bias:
            sections.append(Section(f"{place}hidden.bias", (0,)))
        sections.append(Section(f"{place}project.weight", (0, 1)))
    return [*sections, Section("unembed.weight", (1, 0))]
