"""Weights on disk: one safetensors file beside a record, which names it with its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.records.files import NotAFile, read_regular

if TYPE_CHECKING:
    from torch import Tensor

SUFFIX = ".safetensors"
MAX_BYTES = 1 << 31

LEAST_LOSS = "least-loss/"  # before the names of a second set of weights: that of the least cross-entropy


def to_bytes(state: Mapping[str, Tensor], least_loss: Mapping[str, Tensor] | None = None) -> bytes:
    """State dicts as safetensors, each tensor in its own dtype; tensors that share memory are written apart."""
    from safetensors.torch import save

    both = {**state, **{LEAST_LOSS + name: value for name, value in (least_loss or {}).items()}}
    return save({name: value.detach().cpu().contiguous().clone() for name, value in both.items()})


def from_bytes(content: bytes, prefix: str = "") -> dict[str, Tensor]:
    """The weights that hold most facts, or with the prefix LEAST_LOSS those of the least loss.

    ValueError, in words, for anything that is not a whole safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        both = load(content)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"not a whole safetensors file ({error})") from None
    chosen = {name for name in both if name.startswith(LEAST_LOSS) is bool(prefix)}
    return {name.removeprefix(prefix): value for name, value in both.items() if name in chosen}


def prefixes(content: bytes) -> list[str]:
    """Of the sets of weights in a safetensors file, by its header alone, which needs no torch."""
    try:
        names = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return ["", LEAST_LOSS] if any(name.startswith(LEAST_LOSS) for name in names) else [""]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return [""]  # whoever loads it will say what is wrong


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
        content = read_regular(path, MAX_BYTES)
    except NotAFile as error:
        raise ValueError(f"its weights '{path.name}': {error}") from None
    if hashlib.sha256(content).hexdigest() != weights.get("sha256"):
        raise ValueError(f"its weights '{path.name}' are not those that were measured: their SHA-256 is another")
    return content


def are_there(weights: Mapping[str, Any] | None, record: Path) -> bool:
    try:
        return bool(read(weights, record))
    except ValueError:
        return False
