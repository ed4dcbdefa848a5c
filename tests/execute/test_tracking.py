"""Trackers are told what becomes of trials, and none of them can cost a run anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import membench
from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.interface.registry import Registry, Selection
from membench.interface.tracker import Event, Tracker

TRACKERS = """
import json
from contextlib import contextmanager

from membench.api import Tracker, hookimpl


@contextmanager
def keep(folder):
    print("a tracker that talks")
    with (folder / "events.jsonl").open("a") as file:
        def listen(event):
            row = [event.kind, event.key, event.title, dict(event.options), event.numbers, event.error]
            file.write(json.dumps(row) + "\\n")
        yield listen
        file.write('["closed"]\\n')


@contextmanager
def fail_at_once(folder):
    raise OSError("no disk")
    yield


@contextmanager
def fail_later(folder):
    def listen(event):
        if event.kind == "finished":
            raise SystemExit("I do not like this number")
    yield listen


@hookimpl
def membench_events():
    return [
        Tracker(name="keep", summary="writes a file", open=keep),
        Tracker(name="fail-at-once", summary="fails", open=fail_at_once),
        Tracker(name="fail-later", summary="fails", open=fail_later),
        Tracker(name="absent", summary="lacks", open=keep, needs="no_such_module", install="pip install 'x[absent]'"),
    ]
"""


@pytest.fixture
def trackers(tmp_path: Path) -> Path:
    path = tmp_path / "my_trackers.py"
    path.write_text(TRACKERS, encoding="utf-8")
    return path


def run(tmp_path: Path, *plugins: Path, model: str = "lookup", **more: Any) -> membench.Results:
    words: dict[str, Any] = {"T": {"N": 4}, "protocol": "quick", "P": {"steps": 5}, "seeds": 2, "executor": "inline"}
    return membench.run(model, "bigram", **{**words, **more}, out=tmp_path / "out", plugins=plugins, progress=False)


def events(tmp_path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_a_tracker_hears_of_every_trial_in_order(tmp_path: Path, trackers: Path, executor: str) -> None:
    (tmp_path / "out").mkdir()
    results = run(tmp_path, trackers, track="keep", executor=executor)
    told = events(tmp_path)
    assert [row[0] for row in told[:2]] == ["planned", "planned"]
    assert told[-1] == ["closed"]
    for record in results.records:
        own = [row for row in told if row[1:2] == [f"{record.id}-s{record.seed}"]]
        assert [row[0] for row in own] == ["planned", "started", "finished"]
        assert own[0][2] == f"lookup on bigram, seed {record.seed}"
        assert own[0][3].items() >= {"model": "lookup", "task": "bigram", "task.N": 4, "protocol.steps": 5}.items()
        assert own[0][4] == {}
        assert own[2][4]["accuracy"] == record.metrics["accuracy"]
        assert own[2][4]["parameters"] == 64


def test_a_trial_that_fails_is_told_with_its_reason(tmp_path: Path, trackers: Path, plugin_file: Path) -> None:
    (tmp_path / "out").mkdir()
    run(tmp_path, trackers, plugin_file, model="toy", M={"fault": "raise"}, seeds=1, track=["keep"])
    *_, last, closed = events(tmp_path)
    assert (last[0], closed) == ("failed", ["closed"])
    assert "broken on purpose" in last[5]


def test_what_has_its_record_already_is_not_told_again(tmp_path: Path, trackers: Path) -> None:
    run(tmp_path)
    run(tmp_path, trackers, track="keep")
    assert not (tmp_path / "out" / "events.jsonl").exists()


def test_a_tracker_that_fails_costs_one_line(
    tmp_path: Path, trackers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    results = run(tmp_path, trackers, track=["fail-at-once", "fail-later", "keep"])
    assert not results.failed
    shown = capsys.readouterr()
    lines = [line for line in shown.err.splitlines() if "was disabled" in line]
    assert lines == [
        "membench: tracker 'fail-at-once' failed and was disabled: OSError: no disk",
        "membench: tracker 'fail-later' failed and was disabled: SystemExit: I do not like this number",
    ]
    assert "a tracker that talks" in shown.err
    assert shown.out == ""
    assert [row[0] for row in events(tmp_path)].count("finished") == 2


def test_the_tracker_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extend.md").read_text("utf-8")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "membench_events" in code]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    results = run(tmp_path, tmp_path / "mine.py", track="log", seeds=1)
    accuracy = results.records[0].metrics["accuracy"]
    lines = (tmp_path / "trials.log").read_text("utf-8").splitlines()
    assert lines == [f"{kind} lookup on bigram, seed 0 None" for kind in ("planned", "started")] + [
        f"finished lookup on bigram, seed 0 {accuracy}"
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kep", "unknown tracker 'kep'; did you mean 'keep'?"),
        ("absent", "--track absent needs the package 'no_such_module'; install it with: pip install 'x[absent]'"),
    ],
)
def test_a_tracker_that_is_not_there_is_said_before_anything_runs(
    tmp_path: Path, trackers: Path, name: str, words: str
) -> None:
    with pytest.raises(UsageError) as error:
        run(tmp_path, trackers, track=name)
    assert words in str(error.value)
    assert not (tmp_path / "out").exists()


OURS = ("trackio", "wandb", "mlflow")


def test_our_trackers_name_the_extra_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("membench.interface.tracker.find_spec", lambda name: None)
    for name in OURS:
        with pytest.raises(UsageError, match=rf"needs the package '{name}'; .* pip install 'membench\[{name}\]'"):
            Registry().tracker(name).require()


def test_listing_them_imports_none_of_their_packages() -> None:
    code = (
        "import sys; from membench.interface.registry import Registry\n"
        "assert {t.name for p in Registry().plugins for t in p.trackers} >= {'trackio', 'wandb', 'mlflow'}\n"
        "sys.exit(bool({'trackio', 'wandb', 'mlflow', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_event_has_only_numbers_that_are_numbers() -> None:
    record = {"metrics": {"accuracy": 0.5, "kl": None}, "size": {"parameters": 3}, "trace": {"curve": [0.1, None, 1]}}
    event = Event("finished", "k", "t", {}, record)
    assert event.numbers == {"accuracy": 0.5, "parameters": 3.0}
    assert event.curve == [0.1, 1.0]
    assert Event("planned", "k", "t", {}).curve == []


def test_a_plugin_that_returns_something_else_does_not_load(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("from membench.api import hookimpl\n@hookimpl\ndef membench_events():\n    return ['wandb']\n")
    (row,) = [one for one in Registry(Selection(files=(str(path),))).plugins if one.name == "wrong"]
    assert row.status == "failed"
    assert "not a membench.api.Tracker" in row.reason
    assert Tracker.__name__ in row.reason
    assert Execution().track == ()
