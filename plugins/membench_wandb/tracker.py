"""One run of wandb for each trial, written when the trial has its record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from membench.api import Event, Listener


@contextmanager
def open_tracker(folder: Path) -> Iterator[Listener]:
    wandb: Any = import_module("wandb")
    folder.mkdir(parents=True, exist_ok=True)
    project, mode = os.environ.get("WANDB_PROJECT", "membench"), os.environ.get("WANDB_MODE", "offline")
    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)

    def listen(event: Event) -> None:
        if event.kind not in ("finished", "failed"):  # a run that waits for its trial would be shown as crashed
            return
        run = wandb.init(
            project=project, mode=mode, dir=str(folder), name=event.title, group=str(event.options["model"]),
            config={**event.options, "trial": event.key}, reinit="create_new", settings=settings,
        )  # fmt: skip
        for step, accuracy in enumerate(event.curve):
            run.log({"accuracy on the way": accuracy}, step=step)
        run.summary.update({**event.numbers, "status": event.kind, "error": event.error})
        run.finish(exit_code=0 if event.kind == "finished" else 1)

    yield listen
