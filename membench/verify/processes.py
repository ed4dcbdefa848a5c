"""The processes that check a record: one has the answers and no plugin, the others have a plugin and no answers.

What a model's process is given is all that a model may know: its config, the tensors of its weights, and one question
after the other; neither the facts nor the seed that they are drawn from, nor the file that the weights came in. The
process that compares, like the one that started them all, imports built-ins only: a plugin could replace whatever it
shares a process with. This file is what the parent process needs, without torch.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from membench.interface.registry import Selection
from membench.verify.confinement import confine

MAX_MESSAGE = 1 << 20  # bytes of JSON that a process of a plugin may send at once
DECLARED = ("identifiable", "active", "state")  # numbers that an architecture may work out from a config
MAX_NUMBERS = 1 << 31  # bytes of tensors or facts


class Failed(Exception):
    """The record says something that is not so."""


class Unchecked(Exception):
    """What the record says cannot be checked here."""


@dataclass(frozen=True)
class Blueprint:
    """What to build, as plain data."""

    selection: Selection
    architecture: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A model to rebuild. The process that compares sends its weights: nothing else of their file reaches a plugin."""

    blueprint: Blueprint
    built_from: int  # the seed of everything that is drawn while it is built


@dataclass(frozen=True)
class Draw:
    """Facts that a plugin's task has to draw."""

    selection: Selection
    task: str
    config: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Case:
    """What is to be checked."""

    selection: Selection  # built-ins only
    record: str  # as JSON
    weights: bytes
    exact: bool  # whether the record was made in an environment like this one
    turns: bytes = b""  # what the answers were turned by, for facts that no seed gives
    code_bytes: int | None = None  # of the compressed source of its architecture
    digests: tuple[str, ...] = ()  # of the plugin files that are given


def run_builder(blueprint: Blueprint, built_from: int, asker: Connection) -> None:
    """Entry point of a process that has no weights: it says what the model is before anything is learned."""
    with _isolated(asker, blueprint.selection):
        from membench.verify.model_process import describe

        describe(blueprint, built_from, asker)


def run_model(candidate: Candidate, asker: Connection) -> None:
    """Entry point of a process that answers questions until its pipe is closed."""
    with _isolated(asker, candidate.blueprint.selection):
        from membench.verify.model_process import answer

        answer(candidate, asker)


def run_task(draw: Draw, asker: Connection) -> None:
    """Entry point of a process that draws the facts of a plugin's task."""
    with _isolated(asker, draw.selection):
        from membench.verify.task_process import draw_and_send

        draw_and_send(draw, asker)


def run_checks(
    case: Case, parent: Connection, task: Connection | None, builder: Connection, *models: Connection
) -> None:
    """Entry point of the process that asks the others, compares, and reports what it measured."""
    with _isolated(parent, case.selection):
        from membench.verify.checks import judge

        say(parent, **judge(case, task, builder, models))


@contextmanager
def _isolated(connection: Connection, selection: Selection) -> Iterator[None]:
    """Ctrl-C is for the parent, and what a plugin prints must not end up on a terminal, or in somebody's --json.

    Where there are plugins the process is confined too: it could look for the answers in that of whoever compares.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if not selection.built_in_only:
        confine()
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the other end is closed
        pass
    finally:
        connection.close()


def say(connection: Connection, **message: Any) -> None:
    """Plain JSON, so that nothing a plugin does can reach another process but text and numbers."""
    connection.send_bytes(json.dumps(message).encode())


def hear(connection: Connection, who: str) -> dict[str, Any]:
    """What a process of a plugin says. Failed when it dies, says nothing that can be understood, or why it cannot."""
    try:
        message = json.loads(connection.recv_bytes(MAX_MESSAGE))
    except (EOFError, OSError):
        raise Failed(f"the process of its {who} ended without a word") from None
    except (ValueError, RecursionError):
        raise Failed(f"the process of its {who} sent what is not JSON") from None
    if not isinstance(message, dict):
        raise Failed(f"the process of its {who} sent what is not an answer")
    if "unavailable" in message:
        raise Unchecked(str(message["unavailable"])[:1000])
    if "error" in message:
        raise Failed(f"its {who} cannot be rebuilt and asked: {str(message['error'])[:1000]}")
    return message


def hear_bytes(connection: Connection, who: str) -> bytearray:
    """The raw numbers that follow a message."""
    try:
        return bytearray(connection.recv_bytes(MAX_NUMBERS))
    except (EOFError, OSError):
        raise Failed(f"the process of its {who} ended before it had sent all of its numbers") from None


def words(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())[:300]
    except Exception:  # of a plugin's own making
        text = "without words"
    return f"{type(error).__name__}: {text}"
