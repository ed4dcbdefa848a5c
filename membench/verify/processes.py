"""The processes that check a record: one has the answers and no model, the others have a model and no answers.

What a model's process is given is all that a model may know: its config, its weights, and one question
after the other; neither the facts nor the seed that they are drawn from.
This file is what the parent process needs, without torch.
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

from membench.interface.facts import Shape
from membench.interface.registry import Selection


class Failed(Exception):
    """The record says something that is not so."""


class Unchecked(Exception):
    """What the record says cannot be checked here."""


@dataclass(frozen=True)
class Candidate:
    """How to rebuild a model, as plain data."""

    selection: Selection
    architecture: str
    config: dict[str, Any]
    shape: Shape
    built_from: int  # the seed of everything that is drawn while it is built
    weights: bytes
    prefix: str  # of the set of weights, where there are two
    exact: bool  # whether a buffer must be the same to the last digit to count as untouched


@dataclass(frozen=True)
class Case:
    """What is to be checked."""

    selection: Selection
    record: str  # as JSON
    exact: bool  # whether the record was made in an environment like this one


def run_model(candidate: Candidate, asker: Connection) -> None:
    """Entry point of a process that answers questions until its pipe is closed."""
    with _isolated(asker):
        from membench.verify.model_process import answer

        answer(candidate, asker)


def run_checks(case: Case, parent: Connection, *models: Connection) -> None:
    """Entry point of a process that asks two rebuilt models for each set of weights, and reports what it found."""
    with _isolated(parent):
        from membench.verify.checks import judge

        say(parent, **judge(case, models))


@contextmanager
def _isolated(connection: Connection) -> Iterator[None]:
    """Ctrl-C is for the parent, and what a plugin prints must not end up in somebody's --json."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    try:
        yield
    except (EOFError, BrokenPipeError):  # the other end is closed
        pass
    finally:
        connection.close()


def say(connection: Connection, **message: Any) -> None:
    """Plain JSON, so that nothing a plugin does can reach another process but text and numbers."""
    connection.send_bytes(json.dumps(message).encode())


def words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
