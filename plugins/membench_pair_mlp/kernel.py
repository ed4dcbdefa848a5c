"""Fused training of pair MLPs; the steps themselves are in kernel.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from membench.api import Facts, NotApplicable
from membench.kernels import FusedTrainer, Layout, Section, Trainer, library, require_plain
from membench_pair_mlp.model import PairMLP

SOURCE = Path(__file__).with_suffix(".cpp")
ACTIVATIONS = ("relu", "gelu", "none")  # in the order of kernel.cpp
BLOCK = 192  # contexts at once, in whole tiles of the kernel's products


class Shape(ctypes.Structure):
    """The `Shape` of kernel.cpp."""

    _fields_ = (
        ("vocab", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("answers", ctypes.c_int64),
        ("neurons", ctypes.c_int64),
        ("activation", ctypes.c_int32),
        ("bias", ctypes.c_int32),
        ("residual", ctypes.c_int32),
        ("norm", ctypes.c_int32),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of a PairMLP whose tokens add up."""
    shape = _shape(modules, facts)
    tables = [Section(f"tables.{position}.weight", (0, 1)) for position in range(shape.length)]
    below = [Section("unembed.bias", (0,))] if shape.bias else []
    biases = [Section("bias", (0,))] if shape.bias else []
    layout = Layout(modules[0], [*tables, *biases, Section("unembed.weight", (1, 0)), *below])
    return FusedTrainer(library(SOURCE), shape, layout, modules, facts, betas, block=BLOCK)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, PairMLP):
        raise NotApplicable(f"the kernel trains PairMLP, not {type(model).__name__}")
    config = model.config
    if config.mixing != "add" or config.gate:
        raise NotApplicable(f"the kernel trains neurons that add up tokens and have no gate, not {config}")
    answers, neurons = model.unembed.weight.shape
    vocab, length = model.vocab, len(model.tables)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    activation = ACTIVATIONS.index(config.activation)
    return Shape(vocab, length, answers, neurons, activation, config.bias, config.residual, config.norm)
