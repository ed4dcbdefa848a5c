"""Trials as runs of Weights & Biases, offline by default."""

from __future__ import annotations

from membench.api import Tracker, hookimpl, lazy

TRACKER = Tracker(
    name="wandb",
    summary="offline runs in the folder 'wandb' beside the records, for wandb sync; WANDB_MODE=online sends them",
    open=lazy("membench_wandb.tracker:open_tracker"),
    needs="wandb",
    install="pip install 'membench[wandb]'",
)


@hookimpl
def membench_events() -> list[Tracker]:
    return [TRACKER]
