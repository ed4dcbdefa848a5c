"""The process of a model: rebuilds it from its weights and answers what it is asked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membench.engine.workbench import build_model
from membench.interface.facts import Shape
from membench.interface.registry import Registry
from membench.measure.evaluate import check_logits
from membench.measure.size import (
    Size,
    beyond_parameters,
    count_without_gradient,
    float_bits,
    float_type,
    measure_size,
)
from membench.records import weights
from membench.verify.processes import Candidate, say, words


def answer(candidate: Candidate, asker: Connection) -> None:
    """Say how large the model is, then answer each batch of tokens with float64 logits; what goes wrong is said."""
    torch.set_num_threads(1)
    try:
        first = _tokens(asker.recv_bytes(), candidate.shape)
        module, size = _rebuild(candidate, first)
        say(asker, size=asdict(size), bits=float_bits(module.state_dict()))
        while True:
            logits = _logits(module, _tokens(asker.recv_bytes(), candidate.shape), candidate.shape.answers)
            say(asker)
            asker.send_bytes(logits.double().contiguous().numpy().tobytes())
    except EOFError:
        raise
    except Exception as error:
        say(asker, error=words(error))


def _tokens(content: bytes, shape: Shape) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.int64).view(-1, shape.length)


def _logits(module: nn.Module, tokens: Tensor, answers: int) -> Tensor:
    with torch.inference_mode():
        return check_logits(module(tokens), len(tokens), answers)


def _rebuild(candidate: Candidate, tokens: Tensor) -> tuple[nn.Module, Size]:
    """The model with its weights, and its size, with the buffers that are not as they were built."""
    architecture = Registry(candidate.selection).architecture(candidate.architecture)
    random.seed(candidate.built_from)
    np.random.seed(candidate.built_from % 2**32)  # what a careless plugin would draw from
    state = weights.from_bytes(candidate.weights, candidate.prefix)
    config = architecture.config(**candidate.config)
    module = build_model(architecture, candidate.shape, config, candidate.built_from, float_type(state))
    fresh = beyond_parameters(module)
    _load(module, state)
    size = measure_size(module, candidate.shape, architecture.embeddings, fresh, close=not candidate.exact)
    size = replace(size, without_gradient=count_without_gradient(module, tokens))
    return module.eval(), size


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
