"""Trackers are told what becomes of trials, in the process of the driver. One that fails costs one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from membench.execute.driver import Watcher
from membench.interface.options import to_dict
from membench.interface.tracker import Event, Kind, Listener, Tracker
from membench.plan.trial import Trial
from membench.printing import printable
from membench.records.record import Record


@contextmanager
def tracking(trackers: Sequence[Tracker], trials: Sequence[Trial], folder: Path, watcher: Watcher) -> Iterator[Watcher]:
    """A watcher that does what this one does, and tells the trackers too."""
    if not trackers or not trials:
        yield watcher
        return
    audience = _Audience(folder)

    def started(trial: Trial) -> None:
        watcher.started(trial)
        audience.tell("started", trial)

    def finished(trial: Trial, record: Record) -> None:
        watcher.finished(trial, record)
        audience.tell("finished" if record.complete else "failed", trial, record.to_data())

    try:
        for tracker in trackers:
            audience.open(tracker)
        for trial in trials:
            audience.tell("planned", trial)
        yield replace(watcher, started=started, finished=finished)
    finally:
        audience.close()


@dataclass
class _Audience:
    """The trackers that still listen. What they print goes to standard error: somebody may read our JSON."""

    folder: Path
    listening: dict[str, tuple[AbstractContextManager[Listener], Listener]] = field(default_factory=dict)

    def open(self, tracker: Tracker) -> None:
        with self._careful(tracker.name):
            manager = tracker.open(self.folder)
            self.listening[tracker.name] = manager, manager.__enter__()

    def tell(self, kind: Kind, trial: Trial, record: Mapping[str, Any] | None = None) -> None:
        event = Event(kind, f"{trial.id}-s{trial.seed}", _title(trial), _options(trial), record or {})
        for name, (_, listener) in list(self.listening.items()):
            with self._careful(name):
                listener(event)

    def close(self) -> None:
        for name, (manager, _) in list(self.listening.items()):
            with self._careful(name):
                manager.__exit__(None, None, None)

    @contextmanager
    def _careful(self, name: str) -> Iterator[None]:
        try:
            with redirect_stdout(sys.stderr):
                yield
        except (Exception, SystemExit) as error:
            self.listening.pop(name, None)
            words = printable(" ".join(f"{type(error).__name__}: {error}".split())[:300])
            print(f"membench: tracker '{name}' failed and was disabled: {words}", file=sys.stderr)


def _title(trial: Trial) -> str:
    return f"{trial.describe()}, seed {trial.seed}"


def _options(trial: Trial) -> dict[str, Any]:
    configs = {"model": trial.config, "task": trial.task_config, "protocol": trial.protocol_config}
    names = {"model": trial.architecture.name, "task": trial.task.name, "protocol": trial.protocol.name}
    flat = {f"{kind}.{name}": value for kind, config in configs.items() for name, value in to_dict(config).items()}
    return {**names, "seed": trial.seed, **flat}
