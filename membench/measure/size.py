"""The size of a model, counted by us from the module itself."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from membench.errors import unknown
from membench.interface.facts import Shape

if TYPE_CHECKING:
    import torch
    from torch import nn

    from membench.measure.questions import Question


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
    storage_bits: int = 0  # of all tensors in the state dict, and of what a plugin's options can carry
    learned_bits: int = 0  # of the parameters: no model knows more bits of random facts
    # What is None cannot be measured, or is not known.
    active: int | None = None  # parameters that one question reads
    state: int | None = None  # numbers that are carried from one position to the next
    flops: int | None = None  # of one question
    code_bytes: int | None = None  # of the source, compressed


@dataclass(frozen=True)
class Fresh:
    """A model before it is trained, as data: which of its tensors are parameters, and what the others were built as."""

    parameters: frozenset[str]
    others: Mapping[str, torch.Tensor]  # buffers, and what else is in the state dict
    same: Mapping[str, str]  # a further name of a shared tensor: its first name
    unsaved: int  # numbers in buffers that are left out of the state dict
    forms: Mapping[str, str]  # type and shape of every tensor in the state dict


def describe_fresh(module: nn.Module) -> Fresh:
    """TypeError for a state dict with anything but tensors, which could not be counted."""
    parameters, buffers = (_registered(module, kind) for kind in ("_parameters", "_buffers"))
    state = _state(module)
    first: dict[int, str] = {}
    same = {name: first.setdefault(id(value), name) for name, value in state.items()}
    return Fresh(
        frozenset(name for name, value in state.items() if id(value) in parameters),
        {name: value.detach().clone() for name, value in state.items() if id(value) not in parameters},
        {name: other for name, other in same.items() if name != other},
        sum(value.numel() for key, value in buffers.items() if key not in first),
        forms(state),
    )


def forms(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Type and shape of each tensor, such as float32[4, 10]."""
    return {name: f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" for name, value in state.items()}


def measure_size(
    module: nn.Module,
    shape: Shape,
    embeddings: tuple[str, ...] = (),
    fresh: Fresh | None = None,
    widths: Container[int] | None = None,
) -> Size:
    """The size of a model as it is; without `fresh`, of one that is not trained yet."""
    return count_size(_state(module), fresh or describe_fresh(module), shape, embeddings, widths)


def count_size(
    state: Mapping[str, torch.Tensor],
    fresh: Fresh,
    shape: Shape,
    embeddings: tuple[str, ...] = (),
    widths: Container[int] | None = None,
    questions: Sequence[Question] = (),
) -> Size:
    """The size of weights, counted from the tensors themselves, and what the dearest of these questions took.

    A complex number counts as two parameters. One that is neither complex nor floating-point counts by its bits, as
    many parameters as it has times 32 of them.
    `widths` are those that an embedding may have, None: any.
    """
    distinct = _distinct(state, fresh)
    others = [name for name in distinct if name not in fresh.parameters]
    learned = [name for name in others if is_learned(name, distinct[name], fresh)]
    trained = [name for name in distinct if name in fresh.parameters]
    names = {name: [name, *(other for other, one in fresh.same.items() if one == name)] for name in trained}
    tables = sum(
        _count(distinct[name])
        for name in trained
        if _is_embedding(distinct[name], names[name], shape, embeddings, widths)
    )
    total = sum(_count(distinct[name]) for name in (*trained, *learned))
    return Size(
        total,
        total - tables,
        sum(distinct[name].numel() for name in others) + fresh.unsaved,
        learned_buffers=sum(_count(distinct[name]) for name in learned),
        storage_bits=sum(map(_bits, distinct.values())),
        learned_bits=sum(_bits(distinct[name]) for name in (*trained, *learned)),
        active=max((_active(distinct, (*trained, *learned), one.read) for one in questions), default=None),
        flops=_most_flops(questions),
    )


def _active(state: Mapping[str, torch.Tensor], names: Iterable[str], read: Mapping[str, int]) -> int:
    """As many parameters as have been read, by the rule that counts all of them."""
    return sum(
        -(-read[name] * _count(state[name]) // (state[name].numel() * state[name].element_size()))
        for name in names
        if state[name].numel()
    )


def _most_flops(questions: Sequence[Question]) -> int | None:
    found = [one.flops for one in questions if one.flops is not None]
    return max(found) if found and len(found) == len(questions) else None


def learned_tensors(state: Mapping[str, torch.Tensor], fresh: Fresh) -> dict[str, torch.Tensor]:
    """Those that hold what was learned, each once."""
    return {name: value for name, value in _distinct(state, fresh).items() if is_learned(name, value, fresh)}


def is_learned(name: str, value: torch.Tensor, fresh: Fresh) -> bool:
    """Whether it is a parameter, or a buffer that is not as it was built."""
    return name in fresh.parameters or not same_bytes(value, fresh.others.get(name))


def _distinct(state: Mapping[str, torch.Tensor], fresh: Fresh) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if not _is_shared(name, state, fresh)}


def option_bits(config: Mapping[str, Any]) -> int:
    """Bits that the options of a plugin can carry: what is written there need not be in the weights."""
    return sum(map(_written_bits, config.values()))


def _written_bits(value: Any) -> int:
    if isinstance(value, str):
        return 8 * len(value.encode())
    if value is None or isinstance(value, bool):
        return int(value is not None)
    return 4 * len(str(value))  # a digit each


def widths_of(config: Mapping[str, Any]) -> set[int]:
    """The widths that an embedding may have: those that the config names, so that its label shows them."""
    return {value for value in config.values() if type(value) is int}


def _is_shared(name: str, state: Mapping[str, torch.Tensor], fresh: Fresh) -> bool:
    """Whether it is a further name of a tensor that is counted already, and still the same."""
    first = fresh.same.get(name)
    return first is not None and first in state and same_bytes(state[name], state[first])


def _registered(module: nn.Module, kind: str) -> dict[int, torch.Tensor]:
    """The parameters or buffers of a module and all in it, by their id.

    Read from where nn.Module keeps them: its methods may be overridden, to hide some.
    """
    found: dict[int, torch.Tensor] = {}
    seen: set[int] = set()
    waiting = [module]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = vars(one)
        found.update((id(value), value) for value in kept[kind].values() if value is not None)
        waiting.extend(kept["_modules"].values())
    return found


def _count(value: torch.Tensor) -> int:
    if value.is_complex():
        return 2 * value.numel()
    return value.numel() if value.is_floating_point() else -(-_bits(value) // 32)


def _bits(value: torch.Tensor) -> int:
    return 8 * value.numel() * value.element_size()


def float_type(state: Mapping[str, torch.Tensor]) -> str:
    """The name of the floating-point type of some weights, or of the parts of complex ones."""
    numbers = (v for v in state.values() if v.is_floating_point() or v.is_complex())
    return next((str(v.dtype.to_real()).removeprefix("torch.") for v in numbers), "float32")


def float_bits(state: Mapping[str, torch.Tensor]) -> int:
    """Bits of a number of that type."""
    numbers = (v for v in state.values() if v.is_floating_point() or v.is_complex())
    return next((8 * v.dtype.to_real().itemsize for v in numbers), 32)


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    import torch
    from torch import nn

    state = nn.Module.state_dict(module, keep_vars=True)  # the tensors themselves, by which shared ones are known
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"'{name}' of the state dict is a {type(value).__name__}; all that a model knows are tensors"
            )
    return dict(state)


def same_bytes(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Bit for bit: 0 and -0 are equal, and would tell a bit."""
    import torch

    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_meta and other.is_meta:  # models that are only counted have no bytes
        return True
    raw, others = (t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for t in (one, other))
    return torch.equal(raw, others)


def is_under(name: str, prefix: str) -> bool:
    """Whether a parameter is the one that a prefix names, or lies in the module that it names."""
    return f"{name}.".startswith(f"{prefix.removesuffix('.')}.")


def _is_embedding(
    parameter: torch.Tensor,
    names: Iterable[str],
    shape: Shape,
    prefixes: Iterable[str],
    widths: Container[int] | None,
) -> bool:
    """A declared embedding counts as one only if it is what the word says: one row per token, position or answer.

    Its width is one that the config names: any function of two tokens would fit into a table that is wide enough.
    """
    declared = any(is_under(name, prefix) for name in names for prefix in prefixes)
    is_table = parameter.dim() == 2 and parameter.shape[0] in shape
    return declared and is_table and (widths is None or parameter.shape[1] in widths)


def count_without_gradient(module: nn.Module, tokens: torch.Tensor) -> int:
    """Parameters that receive no gradient at all from the logits of these tokens, asked as they are when measured."""
    import torch

    from membench.measure.evaluate import logits_of

    every = [value for value in _registered(module, "_parameters").values() if isinstance(value, torch.Tensor)]
    parameters = [p for p in every if p.requires_grad]
    frozen = sum(_count(p) for p in every if not p.requires_grad)
    if not parameters:
        return frozen
    was_training = module.training
    module.eval()  # in training mode, batch norm would learn from being asked
    loss = torch.logsumexp(logits_of(module(tokens)), dim=-1).sum()
    module.train(was_training)
    kept = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    loss.backward()  # not autograd.grad, which checkpoints inside a module may refuse
    unreached = sum(_count(p) for p in parameters if p.grad is None)
    for p, before in zip(parameters, kept, strict=True):
        p.grad = before
    return frozen + unreached
