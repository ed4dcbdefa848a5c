"""Trials as runs of trackio, which keeps them on this machine."""

from __future__ import annotations

from membench.api import Tracker, hookimpl, lazy

TRACKER = Tracker(
    name="trackio",
    summary="runs of the project 'membench'; look at them with: trackio show --project membench",
    open=lazy("membench_trackio.tracker:open_tracker"),
    needs="trackio",
    install="pip install 'membench[trackio]'",
)


@hookimpl
def membench_events() -> list[Tracker]:
    return [TRACKER]
