"""What one question costs a model: which of its numbers are read, and the arithmetic of its matrix products."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

# Products that torch's counter takes for nothing. The three switches of `_plainly` avoid those that they can.
OPAQUE = re.compile(
    r"mkldnn|lstm|gru|rnn|fft|cdist|linalg_(?!vector_norm)|_scaled_dot|_transformer|_multi_head|quantized|sparse"
)


class Question(NamedTuple):
    """What one question cost."""

    read: Mapping[str, int]  # bytes of each tensor of the state dict
    flops: int | None  # two for each multiplication with an addition; None where torch does not count all of them


def ask_one_by_one(module: nn.Module, tokens: Tensor) -> list[Question]:
    """Of each of these questions, alone; none of a model that takes only several at once."""
    state = {name: value for name, value in nn.Module.state_dict(module).items() if isinstance(value, Tensor)}
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), _plainly():
            return [_ask(module, state, question) for question in tokens.split(1)]
    except Exception:  # what is wrong with a model is said where it is measured
        return []
    finally:
        module.train(was_training)


@contextmanager
def _plainly() -> Iterator[None]:
    """With the layers of torch as the products that they are made of, which its counter knows."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a switch for other hardware, which is left as it is
            with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
                yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _ask(module: nn.Module, state: Mapping[str, Tensor], question: Tensor) -> Question:
    counter, reads = FlopCounterMode(display=False), _Reads(state)
    with counter, reads:
        module(question)
    return Question(reads.found(), None if reads.opaque else int(counter.get_total_flops()))


class _Reads(TorchDispatchMode):
    """Notes which bytes of some tensors are read: of a table, the rows that are looked up; of all else, everything."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state, self.opaque = state, False
        self.seen: dict[int, Tensor] = {}  # for each byte of a storage, by its address, whether it was read
        for value in state.values():
            storage = value.untyped_storage()
            self.seen[storage.data_ptr()] = torch.zeros(storage.nbytes(), dtype=torch.bool)

    def found(self) -> dict[str, int]:
        return {name: int(self._bytes(value).sum()) for name, value in self.state.items()}

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ):
        given = dict(kwargs or {})
        self.opaque |= func.namespace != "aten" or bool(OPAQUE.search(func.__name__))
        if not _is_view(func):
            self._note(func, args, given)
        return func(*args, **given)

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        table = tensors[0] if tensors else None
        rows = _looked_up(func, args)
        if table is not None and rows is not None and self._is_known(table):
            self._bytes(table)[rows] = True
            tensors = tensors[1:]
        for one in tensors:
            if self._is_known(one):
                self._bytes(one).fill_(True)

    def _is_known(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.seen

    def _bytes(self, tensor: Tensor) -> Tensor:
        """Of each number of a tensor, the notes on its bytes."""
        size = tensor.element_size()
        notes = self.seen[tensor.untyped_storage().data_ptr()]
        strides = [size * stride for stride in tensor.stride()]
        return notes.as_strided((*tensor.shape, size), (*strides, 1), size * tensor.storage_offset())


def _is_view(func: Any) -> bool:
    """Whether it only gives a tensor another form, and reads nothing."""
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)


def _looked_up(func: Any, args: tuple[Any, ...]) -> tuple[Tensor | slice, ...] | None:
    """The indices at which an operation reads its first tensor; None if it reads all of it."""
    name = func.__name__.partition(".")[0]
    if name in ("embedding", "_embedding_bag", "_embedding_bag_forward_only"):
        return (args[1].cpu(),)
    if name == "index_select":
        return (*[slice(None)] * (args[1] % args[0].dim()), args[2].cpu())
    if name == "index":
        return tuple(slice(None) if one is None else one.cpu() for one in args[1])
    if name == "gather":
        at = args[2].cpu()
        grid = list(torch.meshgrid(*(torch.arange(length) for length in at.shape), indexing="ij"))
        grid[args[1] % at.dim()] = at
        return tuple(grid)
    return None
