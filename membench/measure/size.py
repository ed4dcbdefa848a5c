"""The size of a model, counted by us from the module itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from membench.errors import unknown
from membench.interface.facts import Shape

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Count:
    """A way to count parameters."""

    word: str  # after --count, and a key in JSON
    field: str  # of `Size`, and the name of a column
    header: str  # of that column
    words: str  # in a sentence, or on an axis


ALL = Count("all", "parameters", "parameters", "parameters")
# All of them, then those that leave some out.
COUNTS = {
    count.word: count
    for count in (
        ALL,
        Count("without-embeddings", "without_embeddings", "without embeddings", "parameters without embeddings"),
    )
}


def count_of(word: str) -> Count:
    """The way to count that a word stands for. UsageError for a word that is not one."""
    if word not in COUNTS:
        raise unknown("way to count", word, COUNTS, f"there are: {', '.join(COUNTS)}")
    return COUNTS[word]


@dataclass(frozen=True)
class Size:
    """Numbers of scalars. Shared tensors count once; frozen tensors that are not parameters are buffers.

    A buffer that training changed holds what was learned, and counts as parameters, whatever it is called.
    """

    parameters: int
    without_embeddings: int
    buffers: int
    without_gradient: int = 0  # parameters that the loss does not reach
    identifiable: int | None = None  # parameters less those whose changes others can undo, where that is known
    learned_buffers: int = 0  # of the parameters, those in buffers
    storage_bits: int = 0  # of all tensors in the state dict


def measure_size(
    module: nn.Module,
    shape: Shape,
    embeddings: tuple[str, ...] = (),
    fresh: Mapping[str, torch.Tensor] | None = None,
    close: bool = False,
) -> Size:
    """Parameters, parameters that are not embeddings, and buffers (those left out of the state dict too).

    `fresh` is what `beyond_parameters` gave for a freshly built model: a buffer that differs was
    learned. With `close`, last digits may differ, as they do between platforms. TypeError for a
    state dict with anything but tensors, which could not be counted.
    """
    names: dict[nn.Parameter, list[str]] = {}  # a tensor that is used twice has two names and counts once
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    total = sum(parameter.numel() for parameter in names)
    tables = sum(p.numel() for p, known_as in names.items() if _is_embedding(p, known_as, shape, embeddings))
    others = beyond_parameters(module)
    learned = 0 if fresh is None else sum(b.numel() for n, b in others.items() if not _same(b, fresh.get(n), close))
    return Size(
        total + learned,
        total + learned - tables,
        sum(b.numel() for b in others.values()),
        learned_buffers=learned,
        storage_bits=_storage_bits(module),
    )


def beyond_parameters(module: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of all tensors of a module that are no parameters: its buffers, and what else is in its state dict."""
    named = dict(module.named_buffers())
    known = {id(tensor) for tensor in (*module.parameters(), *named.values())}
    for name, value in _state(module).items():
        if id(value) not in known:
            named[name] = value
    return {name: value.detach().clone() for name, value in named.items()}


def float_type(state: Mapping[str, torch.Tensor]) -> str:
    """The name of the floating-point type of some weights."""
    return next((str(v.dtype).removeprefix("torch.") for v in state.values() if v.is_floating_point()), "float32")


def float_bits(state: Mapping[str, torch.Tensor]) -> int:
    """Bits of a number of that type."""
    return next((8 * v.element_size() for v in state.values() if v.is_floating_point()), 32)


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    import torch

    state = module.state_dict(keep_vars=True)  # the tensors themselves, by which shared ones are known
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"'{name}' of the state dict is a {type(value).__name__}; all that a model knows are tensors"
            )
    return dict(state)


def _storage_bits(module: nn.Module) -> int:
    distinct = {id(value): value for value in _state(module).values()}
    return sum(8 * value.numel() * value.element_size() for value in distinct.values())


def _same(buffer: torch.Tensor, fresh: torch.Tensor | None, close: bool) -> bool:
    import torch

    if fresh is None or buffer.shape != fresh.shape or buffer.dtype != fresh.dtype:
        return False
    if close and buffer.is_floating_point():
        return torch.allclose(buffer, fresh.to(buffer.device), rtol=1e-5, atol=1e-6)
    return torch.equal(buffer, fresh.to(buffer.device))


def _is_embedding(parameter: nn.Parameter, names: Iterable[str], shape: Shape, prefixes: Iterable[str]) -> bool:
    """A declared embedding counts as one only if it is what the word says: one row per token, position or answer."""
    declared = any(name == prefix or name.startswith(prefix + ".") for name in names for prefix in prefixes)
    return declared and parameter.dim() == 2 and parameter.shape[0] in shape


def count_without_gradient(module: nn.Module, tokens: torch.Tensor) -> int:
    """Parameters that receive no gradient at all from the logits of these tokens, asked as they are when measured."""
    import torch

    parameters = [p for p in module.parameters() if p.requires_grad]
    frozen = sum(p.numel() for p in module.parameters() if not p.requires_grad)
    if not parameters:
        return frozen
    was_training = module.training
    module.eval()  # in training mode, batch norm would learn from being asked
    loss = torch.logsumexp(module(tokens), dim=-1).sum()
    module.train(was_training)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return frozen + sum(p.numel() for p, g in zip(parameters, gradients, strict=True) if g is None)
