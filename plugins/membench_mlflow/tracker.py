"""One run of MLflow for each trial: scheduled when it is planned, and then as the trial goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from membench.api import Event, Listener

EXPERIMENT = "membench"
STATUS = {"planned": "SCHEDULED", "started": "RUNNING", "finished": "FINISHED", "failed": "FAILED"}


@contextmanager
def open_tracker(folder: Path) -> Iterator[Listener]:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask whether it is meant
    mlflow: Any = import_module("mlflow")
    store = os.environ.get("MLFLOW_TRACKING_URI", (folder / "mlruns").absolute().as_uri())
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
    runs: dict[str, str] = {}

    def listen(event: Event) -> None:
        if event.kind == "planned":
            tags = {"trial": event.key, "records": str(folder)}
            runs[event.key] = client.create_run(experiment_id, tags=tags, run_name=event.title).info.run_id
            for name, value in event.options.items():
                client.log_param(runs[event.key], name, value)
        run = runs[event.key]
        for step, accuracy in enumerate(event.curve):
            client.log_metric(run, "accuracy on the way", accuracy, step=step)
        for name, value in event.numbers.items():
            client.log_metric(run, name.replace("@", " at "), value)  # it refuses recall@2
        if event.error:
            client.set_tag(run, "error", event.error)
        client.update_run(run, status=STATUS[event.kind])

    yield listen
    for run in runs.values():  # what was interrupted would be shown as running for ever
        if client.get_run(run).info.status in ("SCHEDULED", "RUNNING"):
            client.set_terminated(run, "KILLED")
