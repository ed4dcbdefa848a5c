"""Trials as runs of MLflow, in a file store beside the records."""

from __future__ import annotations

from membench.api import Tracker, hookimpl, lazy

TRACKER = Tracker(
    name="mlflow",
    summary="runs in the folder 'mlruns' beside the records, or where MLFLOW_TRACKING_URI says",
    open=lazy("membench_mlflow.tracker:open_tracker"),
    needs="mlflow",
    install="pip install 'membench[mlflow]'",
)


@hookimpl
def membench_events() -> list[Tracker]:
    return [TRACKER]
