"""The processes of a model: one says what it is before it has learned anything, others answer what they are asked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
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
from membench.measure.questions import ask_one_by_one
from membench.measure.size import count_without_gradient, describe_fresh
from membench.records import weights
from membench.verify.processes import DECLARED, Blueprint, Candidate, say, words


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
            **{count: _counted(getattr(architecture, count), shape, config) for count in DECLARED},
            embeddings=list(architecture.embeddings),
            kernel=architecture.kernel is not None,
            parameters=sorted(fresh.parameters),
            same=dict(fresh.same),
            unsaved=fresh.unsaved,
            forms=dict(fresh.forms),
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
        # of nn.Module itself, not what a plugin may have put in its place
        nn.Module.load_state_dict(module, weights.from_bytes(asker.recv_bytes()))
        module.eval()
        tokens = _tokens(asker.recv_bytes(), shape)
        questions = [one._asdict() for one in ask_one_by_one(module, tokens)]
        say(asker, without_gradient=count_without_gradient(module, tokens), questions=questions)
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


def _counted(count: Callable[[Shape, Any], int] | None, shape: Shape, config: Any) -> int | None:
    try:
        return count(shape, config) if count else None
    except NotApplicable:
        return None


def _tokens(content: bytes, shape: Shape) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.int64).view(-1, shape.length)


def _logits(module: nn.Module, tokens: Tensor, answers: int) -> Tensor:
    with torch.no_grad():
        return check_logits(module(tokens), len(tokens), answers).detach().double().contiguous()
