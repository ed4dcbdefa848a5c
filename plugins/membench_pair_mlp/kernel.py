"""Fused training of plain pair MLPs; the steps themselves are in kernel.cpp."""

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
BLOCK = 192  # contexts at once, in whole tiles of the kernel's products


class Shape(ctypes.Structure):
    """The `Shape` of kernel.cpp."""

    _fields_ = (
        ("vocab", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("answers", ctypes.c_int64),
        ("neurons", ctypes.c_int64),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of a plain PairMLP."""
    shape = _shape(modules, facts)
    tables = [Section(f"tables.{position}.weight", (0, 1)) for position in range(shape.length)]
    layout = Layout(modules[0], [*tables, Section("unembed.weight", (1, 0))])
    return FusedTrainer(library(SOURCE), shape, layout, modules, facts, betas, block=BLOCK)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, PairMLP):
        raise NotApplicable(f"the kernel trains PairMLP, not {type(model).__name__}")
    if not model.config.is_plain:
        raise NotApplicable(f"the kernel trains the plain model, not {model.config}")
    answers, neurons = model.unembed.weight.shape
    vocab, length = model.vocab, len(model.tables)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    return Shape(vocab, length, answers, neurons)
