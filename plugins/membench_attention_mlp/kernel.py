"""Fused training of attention-simulated MLPs with an explicit mask; the steps themselves are in C++, beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from membench.api import Facts, NotApplicable
from membench.kernels import FusedTrainer, Layout, Section, Trainer, library, require_plain
from membench_attention_mlp.model import AttentionMLP, MaskedHeads, TiedHeads

SOURCE = Path(__file__).with_suffix(".cpp")
TIED_SOURCE = SOURCE.with_name("tied_kernel.cpp")
BLOCK = 64  # contexts at once: what the heads say of them stays in the cache


class Shape(ctypes.Structure):
    """The `Shape` of kernel.cpp."""

    _fields_: ClassVar[Sequence[tuple[str, type[Any]]]] = (
        ("vocab", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("answers", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("neurons", ctypes.c_int64),
    )


class TiedShape(Shape):
    """The `Shape` of tied_kernel.cpp."""

    _fields_ = (("alpha", ctypes.c_float),)


def make_trainer(modules: Sequence[nn.Module], facts: Sequence[Facts], betas: NDArray[np.float32]) -> Trainer:
    """A Trainer for replicas of an AttentionMLP with mask=explicit."""
    shape = _shape(modules, facts)
    tied = isinstance(shape, TiedShape)
    source, neurons = (TIED_SOURCE, _TIED_HEADS) if tied else (SOURCE, _HEADS)
    layout = Layout(modules[0], [*_MIXER, *neurons, Section("unembed.weight", (1, 0))])
    return FusedTrainer(library(source), shape, layout, modules, facts, betas, block=BLOCK)


def _shape(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> Shape:
    require_plain(modules, facts)
    model = modules[0]
    if not isinstance(model, AttentionMLP):
        raise NotApplicable(f"the kernel trains AttentionMLP, not {type(model).__name__}")
    if isinstance(model.neurons, MaskedHeads):
        raise NotApplicable("the kernel trains mask=explicit, not mask=weights")
    vocab, d = model.word.weight.shape
    length, answers = len(model.position.weight), len(model.unembed.weight)
    if facts[0].shape != (vocab, length, answers):
        raise NotApplicable(
            f"the model is for N={vocab}, S={length} and A={answers}, and the facts are {facts[0].shape}"
        )
    if isinstance(model.neurons, TiedHeads):
        return TiedShape(vocab, length, answers, d, len(model.neurons.W_1), model.neurons.alpha)
    return Shape(vocab, length, answers, d, len(model.neurons.query))


# The parameters in the order of the kernels: tokens, answers and heads come last, where they are padded.
_MIXER = [
    Section("word.weight", (1, 0)),
    Section("position.weight", (0, 1)),
    Section("mixer.query", (0, 1)),
    Section("mixer.key", (0, 1)),
    Section("mixer.value", (0, 1)),
    Section("mixer.output", (0, 1)),
]
_HEADS = [
    Section("neurons.query", (1, 0)),
    Section("neurons.key", (1, 0)),
    Section("neurons.value", (1, 0)),
    Section("neurons.output", (0, 1)),
]
_TIED_HEADS = [
    Section("neurons.W_1", (1, 0)),
    Section("neurons.b_1", (0,)),
    Section("neurons.W_2", (0, 1)),
]
