"""The processes of a model: one says what it is before it has learned anything, others answer what they are asked."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membench.engine.workbench import build_model
from membench.errors import MembenchError, NotApplicable
from membench.interface.declarations import Architecture
from membench.interface.facts import Shape
from membench.interface.options import canonical, shown_options
from membench.interface.registry import Registry
from membench.measure.evaluate import check_logits
from membench.measure.size import count_without_gradient, describe_fresh
from membench.records import weights
from membench.verify.processes import Blueprint, Candidate, say, words


def describe(blueprint: Blueprint, built_from: int, asker: Connection) -> None:
    """Say which code, config and tensors the model has, then send its buffers as they were built."""
    torch.set_num_threads(1)
    try:
        shape, dtype = _request(asker)
        architecture, config = _declared(blueprint)
        if architecture.check:
            architecture.check(shape, config)
        fresh = describe_fresh(_built(architecture, shape, config, built_from, dtype))
        say(
            asker,
            version=architecture.version,
            origin=asdict(architecture.origin),
            config=canonical(config, architecture.name),
            shown=shown_options(config),
            identifiable=_identifiable(architecture, shape, config),
            embeddings=list(architecture.embeddings),
            kernel=architecture.kernel is not None,
            parameters=sorted(fresh.parameters),
            same=dict(fresh.same),
            unsaved=fresh.unsaved,
        )
        asker.send_bytes(weights.to_bytes(fresh.others))
    except (EOFError, BrokenPipeError):
        raise
    except MembenchError as error:
        say(asker, unavailable=str(error))
    except Exception as error:
        say(asker, error=words(error))


def answer(candidate: Candidate, asker: Connection) -> None:
    """Answer each batch of tokens with float64 logits; what goes wrong is said."""
    torch.set_num_threads(1)
    try:
        shape, dtype = _request(asker)
        architecture, config = _declared(candidate.blueprint)
        module = _built(architecture, shape, config, candidate.built_from, dtype)
        _load(module, weights.from_bytes(candidate.weights, candidate.prefix))
        module.eval()
        say(asker, without_gradient=count_without_gradient(module, _tokens(asker.recv_bytes(), shape)))
        while True:
            logits = _logits(module, _tokens(asker.recv_bytes(), shape), shape.answers)
            say(asker)
            asker.send_bytes(logits.numpy().tobytes())
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:
        say(asker, error=words(error))


def _request(asker: Connection) -> tuple[Shape, str]:
    told = json.loads(asker.recv_bytes())
    return Shape(*told["shape"]), told["dtype"]


def _declared(blueprint: Blueprint) -> tuple[Architecture[Any], Any]:
    architecture = Registry(blueprint.selection).architecture(blueprint.architecture)
    return architecture, architecture.config(**blueprint.config)


def _built(architecture: Architecture[Any], shape: Shape, config: Any, built_from: int, dtype: str) -> nn.Module:
    random.seed(built_from)
    np.random.seed(built_from % 2**32)  # what a careless plugin would draw from
    return build_model(architecture, shape, config, built_from, dtype)


def _identifiable(architecture: Architecture[Any], shape: Shape, config: Any) -> int | None:
    try:
        return architecture.identifiable(shape, config) if architecture.identifiable else None
    except NotApplicable:
        return None


def _tokens(content: bytes, shape: Shape) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.int64).view(-1, shape.length)


def _logits(module: nn.Module, tokens: Tensor, answers: int) -> Tensor:
    with torch.no_grad():
        return check_logits(module(tokens), len(tokens), answers).detach().double().contiguous()


def _load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """All of the weights and nothing else, each in the type that the model has it in."""
    wanted, given = _forms(module.state_dict()), _forms(state)
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise ValueError(f"the weights do not fit the model: '{name}' {_how(wanted.get(name), given.get(name))}")
    nn.Module.load_state_dict(module, dict(state))  # not what a plugin may have put in its place


def _forms(state: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for name, v in state.items()}


def _how(wanted: str | None, given: str | None) -> str:
    if given is None:
        return "is missing"
    return "is not part of it" if wanted is None else f"is {given}, and the model has {wanted}"
