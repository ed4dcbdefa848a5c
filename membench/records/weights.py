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
SAME, COMPLEX = "same", "complex"  # keys of the metadata: {name: first name} and [name], as JSON

LEAST_LOSS = "least-loss/"  # before the names of a second set of weights: that of the least cross-entropy


def to_bytes(state: Mapping[str, Tensor], least_loss: Mapping[str, Tensor] | None = None) -> bytes:
    """State dicts as safetensors, each tensor in its own dtype.

    Tensors of one state dict with the same content, as tied weights are, are written once; complex ones are written as
    pairs of real numbers. The header's metadata says of which names that is so.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    pairs: list[str] = []
    for prefix, one in (("", state), (LEAST_LOSS, least_loss or {})):
        first: dict[Any, str] = {}
        for name, value in one.items():
            plain = _plain(value)
            key = (value.dtype, value.shape, _digest(plain))
            if first.setdefault(key, prefix + name) != prefix + name:
                same[prefix + name] = first[key]
                continue
            tensors[prefix + name] = plain
            if value.is_complex():
                pairs.append(prefix + name)
    metadata = {key: json.dumps(value, sort_keys=True) for key, value in ((SAME, same), (COMPLEX, pairs)) if value}
    return save(tensors, metadata or None)


def _plain(value: Tensor) -> Tensor:
    """As real numbers of its own, on the CPU."""
    from torch import view_as_real

    value = value.detach().cpu().resolve_conj()
    return (view_as_real(value) if value.is_complex() else value).contiguous().clone()


def _digest(value: Tensor) -> bytes:
    from torch import uint8

    return hashlib.sha256(value.reshape(-1).view(uint8).numpy().tobytes()).digest()


def from_bytes(content: bytes, prefix: str = "") -> dict[str, Tensor]:
    """The weights that hold most facts, or with the prefix LEAST_LOSS those of the least loss.

    ValueError, in words, for anything that is not a whole safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        both = _restored(load(content), _header(content).get("__metadata__", {}))
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError, AttributeError) as error:
        raise ValueError(f"not a whole safetensors file ({error})") from None
    chosen = {name for name in both if name.startswith(LEAST_LOSS) is bool(prefix)}
    return {name.removeprefix(prefix): value for name, value in both.items() if name in chosen}


def _restored(tensors: dict[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """Complex numbers from pairs, and tensors that were written once under all of their names."""
    from torch import view_as_complex

    for name in json.loads(metadata.get(COMPLEX, "[]")):
        tensors[name] = view_as_complex(tensors[name])
    shared = {name: tensors[first].clone() for name, first in json.loads(metadata.get(SAME, "{}")).items()}
    if twice := tensors.keys() & shared.keys():
        raise ValueError(f"'{min(twice)}' is there twice")
    return {**tensors, **shared}


def _header(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return found


def prefixes(content: bytes) -> list[str]:
    """Of the sets of weights in a safetensors file, by its header alone, which needs no torch."""
    try:
        return ["", LEAST_LOSS] if any(name.startswith(LEAST_LOSS) for name in _header(content)) else [""]
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
    return checked(weights, record, content)


def checked(weights: Mapping[str, Any], record: Path, content: bytes) -> bytes:
    """The same content, if it is what the record names. ValueError otherwise."""
    path = record.with_suffix(SUFFIX)
    if hashlib.sha256(content).hexdigest() != weights.get("sha256"):
        raise ValueError(f"its weights '{path.name}' are not those that were measured: their SHA-256 differs")
    return content


def are_there(weights: Mapping[str, Any] | None, record: Path) -> bool:
    try:
        return bool(read(weights, record))
    except ValueError:
        return False
