"""Tracker: somebody who is told what becomes of trials, such as an experiment tracker; and the events that are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from membench.errors import UsageError
from membench.interface.origin import UNKNOWN, Origin

Kind = Literal["planned", "started", "finished", "failed"]


@dataclass(frozen=True)
class Event:
    """What became of one trial. It is planned before anything starts, and finished or failed once it has a record."""

    kind: Kind
    key: str  # the same for all events of a trial: its id and its seed
    title: str  # the trial in a few words
    options: Mapping[str, Any]  # model, task, protocol, seed, and their options as model.d, task.N, protocol.steps
    record: Mapping[str, Any] = field(default_factory=dict)  # of a trial that finished or failed

    @property
    def numbers(self) -> dict[str, float]:
        """The metrics of a trial that finished, its number of parameters and its seconds."""
        found = {
            **self.record.get("metrics", {}),
            "parameters": self.record.get("size", {}).get("parameters"),
            "seconds": self.record.get("run", {}).get("seconds"),
        }
        return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}

    @property
    def curve(self) -> list[float]:
        """Accuracy on the way, where the protocol notes it."""
        curve = self.record.get("trace", {}).get("curve", [])
        return [float(value) for value in curve if isinstance(value, (int, float))] if isinstance(curve, list) else []

    @property
    def error(self) -> str:
        return str(self.record.get("error") or "")


Listener = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """What `--track NAME` chooses. `open` gets the folder of the records, and is left when all trials have ended."""

    name: str
    summary: str
    open: Callable[[Path], AbstractContextManager[Listener]]  # imports what it needs inside
    needs: str = ""  # the module that has to be installed
    install: str = ""  # the command that installs it
    origin: Origin = UNKNOWN  # set by the registry

    def require(self) -> None:
        """UsageError when the module that it needs is missing; nothing is imported to find out."""
        if self.needs and find_spec(self.needs) is None:
            raise UsageError(f"--track {self.name} needs the package '{self.needs}'; install it with: {self.install}")
