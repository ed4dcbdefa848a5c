"""Weights on disk: one safetensors file beside a record, which names it with its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SUFFIX = ".safetensors"


def to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """A state dict as safetensors, each tensor in its own dtype; tensors that share memory are written apart."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous().clone() for name, value in state.items()})


def from_bytes(content: bytes) -> dict[str, Tensor]:
    """ValueError, in words, for anything that is not a whole safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"not a whole safetensors file ({error})") from None


def describe(content: bytes, name: str) -> dict[str, Any]:
    """What a record says of its weights."""
    return {"file": f"{name}{SUFFIX}", "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def read(weights: Mapping[str, Any] | None, record: Path) -> bytes:
    """The weights that a record at this path names. ValueError when they are missing, elsewhere, or others."""
    if not weights:
        raise ValueError("the record names no weights; keep them with: membench run --keep-weights")
    path = record.with_suffix(SUFFIX)
    if weights.get("file") != path.name:
        raise ValueError(f"the record names the weights {weights.get('file')!r}; beside it they would be '{path.name}'")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"its weights '{path.name}' cannot be read: {error.strerror or error}") from None
    if hashlib.sha256(content).hexdigest() != weights.get("sha256"):
        raise ValueError(f"its weights '{path.name}' are not those that were measured: their SHA-256 is another")
    return content


def are_there(weights: Mapping[str, Any] | None, record: Path) -> bool:
    try:
        return bool(read(weights, record))
    except ValueError:
        return False
