"""One run of trackio for each trial, written when the trial has its record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from membench.api import Event, Listener

PROJECT = "membench"


@contextmanager
def open_tracker(folder: Path) -> Iterator[Listener]:
    trackio: Any = import_module("trackio")

    def listen(event: Event) -> None:
        if event.kind not in ("finished", "failed"):  # it has one run at a time, and trials are many
            return
        config = {**event.options, "records": str(folder), "status": event.kind, "error": event.error}
        run = trackio.init(project=PROJECT, name=f"{event.title} ({event.key})", config=config, embed=False)
        for step, accuracy in enumerate(event.curve):
            run.log({"accuracy on the way": accuracy}, step=step)
        if event.numbers:
            run.log(event.numbers)
        trackio.finish()

    yield listen
