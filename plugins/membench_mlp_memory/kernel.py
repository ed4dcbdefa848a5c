"""Fused training of MLP associative memories; the steps themselves are in kernel.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from membench.api import Facts, NotApplicable
from membench.kernels import FusedTrainer, Layout, Section, Trainer, library, require_plain
from membench_mlp_memory.model import MLPMemory

SOURCE = Path(__file__).with_suffix(".cpp")
BLOCK = 120  # contexts at once, in whole tiles of the kernel's products
KEPT_KEYS = 1 << 25  # numbers, kept in two orders: keys of more than 256 MiB are made anew at each step


class Shape(ctypes.Structure):
    """The `Shape` of kernel.cpp."""

    _fields_ = (
        ("vocab", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("answers", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("neurons", ctypes.c_int64),
        ("experts", ctypes.c_int64),
        ("kept", ctypes.c_int64),
        ("smooth", ctypes.c_int32),
    )


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of an MLPMemory."""
    shape = _shape(modules, facts)
    trained = [Section("first", (0, 1)), Section("second", (0, 1))]
    if shape.experts > 1:
        trained.append(Section("gate", (0, 1)))
    frozen = [Section("phases", (0, 2, 1)), Section("outputs", (1, 0))]
    layout = Layout(modules[0], trained, frozen)
    return FusedTrainer(library(SOURCE), shape, layout, modules, facts, betas, block=BLOCK)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, MLPMemory):
        raise NotApplicable(f"the kernel trains MLPMemory, not {type(model).__name__}")
    length, vocab, d = model.phases.shape
    answers, neurons = len(model.outputs), len(model.first)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    experts = model.config.experts
    return Shape(vocab, length, answers, d, neurons, experts, KEPT_KEYS, model.config.activation == "silu")
