"""Trainers whose steps run in a compiled kernel: what the Python side of every such kernel shares.

The other side is kernel.hpp; `_Facts` and `_Run` here are its `Facts` and `Run`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from membench.engine.trainer import EPSILON, Batches, Progress
from membench.errors import NotApplicable
from membench.interface.facts import Facts

LANES = 8  # floats in a vector of the kernel
ALIGNMENT = 64  # bytes that an array may have to start on a multiple of
DENSE = 2 / 3  # share of all pairs of tokens from which it pays to go through all of them


class Section(NamedTuple):
    """A parameter, and the order of its axes in the kernel, where the last one is padded to whole vectors."""

    name: str
    axes: tuple[int, ...]


class Layout:
    """How the parameters of a module lie in the kernel's one array, and after them its buffers, which stay as they are.

    The kernel trains as many numbers as its model says that it has, so that those of `frozen` are only read.
    """

    def __init__(self, module: nn.Module, sections: Sequence[Section], frozen: Sequence[Section] = ()) -> None:
        self.shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        self.trained = [section.name for section in sections]
        self._sections = [*sections, *frozen]
        unknown = self.shapes.keys() ^ {section.name for section in self._sections}
        if unknown:
            raise NotApplicable(f"the kernel does not cover a model with or without {', '.join(sorted(unknown))}")
        disputed = {name for name, _ in module.named_parameters()} ^ set(self.trained)
        if disputed:
            raise NotApplicable(f"kernel and model differ on whether {', '.join(sorted(disputed))} is trained")
        self._padded: list[tuple[int, ...]] = []
        for name, axes in self._sections:
            *rows, last = (self.shapes[name][axis] for axis in axes)
            self._padded.append((*rows, padded(last)))
        self.size = sum(math.prod(shape) for shape in self._padded)

    def pack(self, state: Mapping[str, Tensor]) -> NDArray[np.float32]:
        flat = aligned(self.size, np.float32)
        for (name, axes), view in zip(self._sections, self._views(flat), strict=True):
            value = state[name].detach().numpy().transpose(axes)
            view[..., : value.shape[-1]] = value
        return flat

    def unpack(self, flat: NDArray[np.float32]) -> dict[str, Tensor]:
        state = {}
        for (name, axes), view in zip(self._sections, self._views(flat), strict=True):
            value = view[..., : self.shapes[name][axes[-1]]].transpose(np.argsort(axes))
            state[name] = torch.from_numpy(value.copy())
        return {name: state[name] for name in self.shapes}

    def _views(self, flat: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        ends = np.cumsum([math.prod(shape) for shape in self._padded])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), self._padded, strict=True)]


class FusedTrainer:
    """A Trainer by a compiled kernel. What a replica learns does not depend on the replicas beside it.

    `shape` is the structure that the kernel describes its model with, and `block` the number of
    contexts that it takes at once. A kernel `by_pairs` has a faster way through all pairs of tokens.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        shape: ctypes.Structure,
        layout: Layout,
        modules: Sequence[nn.Module],
        facts: Sequence[Facts],
        betas: NDArray[np.float32],
        block: int = 128,
        by_pairs: bool = False,
    ) -> None:
        require_same_structures(library, (type(shape), _Facts, _Run))
        self._library, self._shape, self._layout, self._block = library, shape, layout, block
        distinct = {id(one): one for one in facts}  # a seed that is tried at many rates is there many times
        prepared = {key: _prepare(one, block, by_pairs) for key, one in distinct.items()}
        self._facts = [prepared[id(one)] for one in facts]
        self._betas = betas
        self._weights = [layout.pack(module.state_dict()) for module in modules]
        self._moments = [(aligned(layout.size, np.float32), aligned(layout.size, np.float32)) for _ in modules]
        self._taken = [0] * len(modules)

    def advance(
        self,
        rates: NDArray[np.float32],
        batches: Batches | None = None,
        slack: NDArray[np.float32] | None = None,
        finishes: bool = False,
    ) -> Progress:
        """Take the steps; see Trainer."""
        seen = Progress(np.full(rates.shape, np.nan, np.float32), np.full(rates.shape, np.nan, np.float32))
        for replica in np.flatnonzero(rates.any(axis=1)).tolist():
            own = None if slack is None else slack[replica]
            run = self._run(replica, rates[replica], batches, own, finishes)
            first, second = self._moments[replica]
            taken = self._call("advance", replica, run, self._weights[replica], first, second)
            self._taken[replica] += taken
            seen.loss[replica, : taken + 1] = run.loss[: taken + 1]
            seen.accuracy[replica, : taken + 1] = run.accuracy[: taken + 1]
        return seen

    def gradient(self, replica: int, batches: Batches | None = None, slack: float = 0.0) -> dict[str, Tensor]:
        """The gradient that the first of such steps would follow."""
        run = self._run(replica, np.zeros(1, np.float32), batches, np.full(1, slack, np.float32))
        out = aligned(self._layout.size, np.float32)
        self._call("gradient", replica, run, self._weights[replica], out)
        gradient = self._layout.unpack(out)
        return {name: gradient[name] for name in self._layout.trained}

    def state(self, replica: int) -> dict[str, Tensor]:
        """The weights as they stand; see Trainer."""
        return self._layout.unpack(self._weights[replica])

    def _run(
        self,
        replica: int,
        rates: NDArray[np.float32],
        batches: Batches | None,
        slack: NDArray[np.float32] | None = None,
        finishes: bool = False,
    ) -> _Work:
        drawn = None if batches is None else (batches.contexts[replica], batches.labels[replica])
        if drawn is not None:
            _check_range("contexts", drawn[0], len(self._facts[replica].inputs))
            _check_range("labels", drawn[1], self._facts[replica].answers)
        return _Work(rates, self._betas[replica], self._taken[replica], self._block, drawn, slack, finishes)

    def _call(self, name: str, replica: int, run: _Work, *arrays: NDArray[np.float32]) -> int:
        structures = (self._shape, self._facts[replica].structure, run.structure)
        function = getattr(self._library, name)
        function.restype = ctypes.c_int64
        return int(function(*map(ctypes.byref, structures), *(ctypes.c_void_p(a.ctypes.data) for a in arrays)))


class _Facts(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.c_void_p),
        ("groups", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
    )


class _Run(ctypes.Structure):
    _fields_ = (
        ("steps", ctypes.c_int64),
        ("taken", ctypes.c_int64),
        ("rates", ctypes.c_void_p),
        ("beta1", ctypes.c_float),
        ("beta2", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        ("block", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        ("contexts", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("loss", ctypes.c_void_p),
        ("accuracy", ctypes.c_void_p),
        ("slack", ctypes.c_void_p),
        ("finishes", ctypes.c_int32),
    )


class _Work:
    """One call's orders, and the memory that they point to."""

    def __init__(
        self,
        rates: NDArray[np.float32],
        betas: NDArray[np.float32],
        taken: int,
        block: int,
        drawn: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
        slack: NDArray[np.float32] | None,
        finishes: bool,
    ) -> None:
        self.rates = np.ascontiguousarray(rates, np.float32)
        self.loss, self.accuracy = np.empty_like(self.rates), np.empty_like(self.rates)
        self.drawn = [np.ascontiguousarray(one, np.int64) for one in drawn or ()]  # contexts and labels
        self.structure = _Run(
            steps=len(self.rates),
            taken=taken,
            beta1=float(betas[0]),
            beta2=float(betas[1]),
            epsilon=EPSILON,
            block=block,
            batch=self.drawn[0].shape[1] if drawn else 0,
            rates=self.rates.ctypes.data,
            loss=self.loss.ctypes.data,
            accuracy=self.accuracy.ctypes.data,
            finishes=finishes,
        )
        if slack is not None:
            self.slack = np.ascontiguousarray(slack, np.float32)
            self.structure.slack = self.slack.ctypes.data
        if drawn:
            self.structure.contexts, self.structure.labels = (one.ctypes.data for one in self.drawn)


@dataclass
class _Prepared:
    """Facts as the kernel takes them: contexts in groups of equal width, filled up by some of no weight."""

    answers: int
    inputs: NDArray[np.int32]  # [T, S]
    tokens: NDArray[np.int32] | None  # [groups, width, S]; None when group t holds the pairs that end in t
    weights: NDArray[np.float32]  # [groups, width]
    targets: NDArray[Any]  # int32[groups, width] or float32[groups, A, width]

    @property
    def structure(self) -> _Facts:
        groups, width = self.weights.shape
        structure = _Facts(groups=groups, width=width, inputs=self.inputs.ctypes.data, weights=self.weights.ctypes.data)
        structure.tokens = None if self.tokens is None else self.tokens.ctypes.data
        setattr(structure, "labels" if self.targets.ndim == 2 else "targets", self.targets.ctypes.data)
        return structure


def _prepare(facts: Facts, block: int, by_pairs: bool) -> _Prepared:
    N, S, A = facts.shape
    if by_pairs and S == 2 and len(facts) >= DENSE * N * N:
        places = facts.inputs[:, 1], facts.inputs[:, 0]
        groups, width, tokens = N, padded(N), None
    else:
        order = np.argsort(facts.inputs[:, -1], kind="stable")  # neighbours then read the same tables
        groups = -(-len(facts) // block)
        width = padded(-(-len(facts) // groups))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(facts))
        places = np.divmod(rank, width)
        tokens = aligned((groups, width, S), np.int32)
        tokens[places] = facts.inputs
    weights = aligned((groups, width), np.float32)
    weights[places] = facts.prior
    return _Prepared(A, facts.inputs.astype(np.int32), tokens, weights, _targets(facts, places, groups, width))


def _targets(facts: Facts, places: tuple[NDArray[np.int64], ...], groups: int, width: int) -> NDArray[Any]:
    if facts.is_association:
        labels = aligned((groups, width), np.int32)
        labels[places] = facts.targets
        return labels
    dense = aligned((groups, facts.answers, width), np.float32)
    dense[places[0], :, places[1]] = facts.targets
    return dense


def require_plain(modules: Sequence[nn.Module], facts: Sequence[Facts]) -> None:
    """Raise NotApplicable unless all are float32 on the CPU, trainable but for buffers, and of one shape."""
    states = [module.state_dict() for module in modules]
    shapes = {tuple((name, tuple(value.shape)) for name, value in state.items()) for state in states}
    if len(shapes) != 1 or len({one.shape for one in facts}) != 1:
        raise NotApplicable("the kernel trains replicas of one shape")
    for module, state in zip(modules, states, strict=True):
        for name, value in state.items():
            if value.dtype != torch.float32 or value.device.type != "cpu":
                raise NotApplicable(
                    f"the kernel trains float32 on the CPU, and {name} is {value.dtype} on {value.device}"
                )
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                raise NotApplicable(f"the kernel trains every parameter, and {name} is frozen")


def require_same_structures(library: ctypes.CDLL, structures: Sequence[type[ctypes.Structure]]) -> None:
    """Raise NotApplicable unless the kernel's structures are as large as ours: it would read what is not there."""
    sizes = (ctypes.c_int64 * len(structures))()
    try:
        library.structure_sizes(ctypes.byref(sizes))
    except AttributeError:
        raise NotApplicable(
            "the kernel does not tell the sizes of its structures; end it with MEMBENCH_KERNEL"
        ) from None
    for structure, theirs in zip(structures, sizes, strict=True):
        if ctypes.sizeof(structure) != theirs:
            raise NotApplicable(
                f"{structure.__name__.lstrip('_')} has {ctypes.sizeof(structure)} bytes in Python and {theirs} in the "
                "kernel; the fields of both must agree"
            )


def _check_range(what: str, values: NDArray[np.int64], end: int) -> None:
    if values.size and (values.min() < 0 or values.max() >= end):
        raise ValueError(f"{what} of a batch must be in 0..{end - 1}, not {values.min()}..{values.max()}")


def padded(size: int) -> int:
    """The next size of whole vectors."""
    return -(-size // LANES) * LANES


def aligned(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros that start where the kernel's vectors may."""
    size = math.prod((shape,) if isinstance(shape, int) else shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array: NDArray[Any] = memory[start : start + size].view(dtype).reshape(shape)
    return array
