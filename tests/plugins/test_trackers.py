"""Our trackers, each against the package that it is for, where that is installed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

CURVE = ("--protocol", "dana2024", "-P", "epochs=3", "-P", "batches=2", "-P", "batch=8")
WORDS = ("run", "--model", "lookup", "--task", "bigram", "-T", "N=4", *CURVE, "--seeds", "1", "--executor", "inline")


def test_trackio_has_the_run(membench: Any, tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    done = membench(*WORDS, "--track", "trackio", TRACKIO_DIR=str(tmp_path / "trackio"))
    assert done.returncode == 0, done.stderr
    assert "was disabled" not in done.stderr
    with closing(sqlite3.connect(tmp_path / "trackio" / "membench.db")) as database:
        ((config,),) = database.execute("select config from configs")
        metrics = [json.loads(row) for (row,) in database.execute("select metrics from metrics order by step")]
    assert json.loads(config).items() >= {"model": "lookup", "task.N": 4, "status": "finished"}.items()
    assert [row["accuracy on the way"] for row in metrics if "accuracy on the way" in row][2:] == [1.0]
    assert {"accuracy", "kl", "parameters"} <= {name for row in metrics for name in row}


def test_wandb_has_the_run_offline(membench: Any, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    done = membench(*WORDS, "--track", "wandb")
    assert done.returncode == 0, done.stderr
    assert "was disabled" not in done.stderr
    (run,) = (tmp_path / "results" / "wandb").glob("offline-run-*")
    (written,) = run.glob("*.wandb")
    content = written.read_bytes()
    for word in (b"accuracy on the way", b"bits_per_parameter", b"lookup on bigram, seed 0"):
        assert word in content


def test_mlflow_has_the_run_in_a_file_store(membench: Any, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    done = membench(*WORDS, "--track", "mlflow")
    assert done.returncode == 0, done.stderr
    assert "was disabled" not in done.stderr
    store = (tmp_path / "results" / "mlruns").as_uri()
    code = (
        f"import mlflow\nclient = mlflow.MlflowClient(tracking_uri={store!r})\n"
        "experiment = client.get_experiment_by_name('membench')\n"
        "(run,) = client.search_runs([experiment.experiment_id])\n"
        "steps = len(client.get_metric_history(run.info.run_id, 'accuracy on the way'))\n"
        "print(run.info.status, run.data.params['task.N'], 'recall at 2' in run.data.metrics, steps)"
    )
    env = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    assert shown.split() == ["FINISHED", "4", "True", "3"]
