"""Progress, where there is somebody to see it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from samples import make_record

from membench.execute import progress
from membench.execute.progress import bar, counting, watching
from membench.interface.registry import Registry
from membench.plan.request import Request, plan

(TRIAL,) = plan(Registry(), Request(["lookup"], ["bigram"], (), ["N=4"], "quick", seeds=(3,)))
FAILED = make_record(status="failed", error="broken [on] purpose")


def work(show: bool = True) -> None:
    with watching(2, show) as watcher:
        watcher.progress(0.5, "half")
        watcher.finished(TRIAL, make_record())
        watcher.finished(TRIAL, FAILED)
    with counting(1, "steps", show) as advance:
        advance()


def test_without_a_terminal_only_what_failed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    work()
    out, err = capsys.readouterr()
    assert (out, err) == ("", "failed: lookup on bigram, seed 3: broken [on] purpose\n")


def test_a_log_has_a_plain_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with watching(2) as watcher:
        watcher.progress(0.5, "half\x1b[2J")
    lines = capsys.readouterr().err.splitlines()
    assert any(
        line.startswith("membench: 0/2 trials, 50%, 0:00:0") and line.endswith("half\ufffd[2J") for line in lines
    )
    monkeypatch.setattr(progress, "LOG_SECONDS", 1000.0)
    with watching(2) as watcher:
        watcher.progress(0.5, "half")
    assert capsys.readouterr().err == ""


def test_a_log_counts_what_failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with watching(2) as watcher:
        watcher.finished(TRIAL, FAILED)
        watcher.progress(0.5, "2 nodes, 4 of 4 workers busy")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("membench: 1/2 trials, 1 failed, 50%, 0:00:0")
    assert last.endswith("2 nodes, 4 of 4 workers busy")


def test_a_failed_trial_is_shown_with_what_it_printed_last(capsys: pytest.CaptureFixture[str]) -> None:
    record = make_record(status="failed", error="broken", trace={"output": "1\n2\n3\n\x1b]0;4\n"})
    with watching(1) as watcher:
        watcher.finished(TRIAL, record)
    lines = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in lines[1:]] == [f"it printed: {text}" for text in ("2", "3", "\ufffd]0;4")]


def test_whoever_wants_no_progress_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    work(show=False)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_with_the_time_left_that_goes_away() -> None:
    script = "import time; from membench.execute.progress import counting\n" \
             "with counting(4, 'steps') as advance:\n    for _ in range(4): time.sleep(0.2); advance()\n" \
             "print('the end')"  # fmt: skip
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", script], stderr=theirs, stdout=subprocess.PIPE, text=True,
                          env=environment, timeout=60, check=True)  # fmt: skip
    shown = os.read(ours, 1 << 16).decode()
    os.close(theirs)
    os.close(ours)
    assert done.stdout == "the end\n"
    assert "3/4 steps" in shown
    assert "at most" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is cleared


class Notebook:
    """What IPython offers in a kernel, as far as it is used."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> Notebook:
        assert raw
        assert display_id
        self.shown.append(content)
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        self.shown.append(content)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    shell = SimpleNamespace(kernel=object())
    vars(ipython)["get_ipython"] = lambda: shell
    vars(display)["display"] = made.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0.0)
    return made


def test_a_notebook_has_one_line_that_ends_with_what_was_done(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching(1) as watcher:
        watcher.progress(0.25, "a <quarter>")
        watcher.finished(TRIAL, FAILED)
    texts = [one["text/plain"] for one in notebook.shown]
    assert any(text.startswith("0/1 trials, 25%") and "left, a <quarter>" in text for text in texts)
    assert texts[-1].startswith("1/1 trials, 1 failed in 0:00:0")
    assert not any("<quarter>" in one["text/html"] for one in notebook.shown)
    assert "broken [on] purpose" in capsys.readouterr().err


def test_ipython_on_a_terminal_is_no_notebook(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = SimpleNamespace()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    with bar("something"):
        pass
    assert notebook.shown == []
