"""What breaks in the middle, done for real but short; benchmarks/faults.py does it at length."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

import membench
from membench.engine.execution import Execution
from membench.errors import FileError
from membench.execute import isolated
from membench.execute.driver import Watcher, execute
from membench.execute.isolated import Isolated, Talk
from membench.execute.run import Run
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store
from membench.regress.baseline import Baseline, write_baseline
from membench.verbs.plot import plot
from membench.verbs.report import report
from membench.verbs.results import pack
from membench.verify.marks import write_marks

GRID = ("run", "--model", "lookup", "--task", "bigram", "-T", "N=4:8", "--protocol", "quick", "-P", "steps=2",
        "--seeds", "3")  # fmt: skip
TRIALS = 15
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The command line in a process of its own, which can be found again with all that it starts."""
    started: list[subprocess.Popen[str]] = []

    def call(*words: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "membench", *words], cwd=tmp_path, stdin=subprocess.DEVNULL, text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "FAULTS": str(tmp_path)},
            )
        )  # fmt: skip
        return started[-1]

    yield call
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def still_there(mark: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"FAULTS={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended
    return found


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s: {what}"
        time.sleep(0.01)


def records(folder: Path) -> dict[str, Any]:
    """By path, all but what says how long they took."""
    rows = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.json")}
    return {path: {name: value for name, value in row.items() if name != "run"} for path, row in rows.items()}


def count(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.json"))


@on_linux
def test_a_run_that_is_killed_and_two_at_once_leave_what_one_leaves(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    results = tmp_path / "results"
    driver = start(*GRID, "--out", "results", "--jobs", "1")
    wait_until(lambda: count(results), "no records")
    driver.kill()
    driver.communicate()
    wait_until(lambda: not still_there(tmp_path), "a process outlived its driver")
    assert count(results) < TRIALS
    (results / "bigram" / ".abc.probes.abcdefgh.part").touch()  # as if it had been killed in a write
    drivers = [start(*GRID, "--out", "results", "--jobs", "1") for _ in range(2)]
    for driver in drivers:
        _, errors = driver.communicate(timeout=300)
        assert driver.returncode == 0, errors
    whole = start(*GRID, "--out", "whole", "--executor", "inline")
    _, errors = whole.communicate(timeout=300)
    assert whole.returncode == 0, errors
    assert len(records(tmp_path / "whole")) == TRIALS
    assert records(results) == records(tmp_path / "whole")
    assert not list(results.rglob("*.part"))


def trials(seeds: tuple[int, ...] = (0, 1, 2)) -> list[Trial]:
    return plan(Registry(), Request(["lookup"], ["bigram"], (), ["N=4"], "quick", ["steps=2"], seeds=seeds))


def server() -> int:
    return int(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]


def below(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def kill_server() -> None:
    os.kill(server(), signal.SIGKILL)


def kill_workers() -> None:
    for process in below(server()):
        os.kill(process, signal.SIGKILL)


@on_linux
@pytest.mark.parametrize("kill", [kill_server, kill_workers])
def test_whatever_is_killed_its_trials_are_tried_once_more(tmp_path: Path, kill: Callable[[], None]) -> None:
    killed: list[Record] = []

    def once(trial: Trial, record: Record) -> None:
        if not killed:
            kill()
        killed.append(record)

    found = execute(trials(), Store(tmp_path), Registry(), Execution(jobs=2), Watcher(finished=once))
    assert [record.error for record in found] == [None] * 3
    assert count(tmp_path) == 3


@on_linux
def test_a_worker_that_is_always_killed_is_a_failed_record_that_says_so(tmp_path: Path) -> None:
    def kill(fraction: float, text: str) -> None:
        kill_workers()

    request = Request(["aot"], ["bigram"], (), ["N=8"], "quick", ["steps=100000"], seeds=(0,))
    watcher = Watcher(progress=kill)
    (record,) = execute(
        plan(Registry(), request), Store(tmp_path), Registry(), Execution(kernel="off", compiling="off"), watcher
    )
    assert record.error == "the worker process was killed by signal 9, and so did the one before it"
    assert Store(tmp_path).latest(plan(Registry(), request)[0]) == record


def nothing(talk: Talk) -> None:
    talk.say(kind="there")


def test_a_process_starts_although_its_server_is_killed_just_then() -> None:
    Isolated.start(nothing, ["torch"]).end()
    for _ in range(3):
        kill_server()
        process = Isolated.start(nothing, ["torch"])
        assert process.connection.poll(60)
        process.end()


def test_processes_that_never_start_are_a_sentence_and_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(process: Any) -> None:
        raise EOFError("unexpected EOF")  # of which click would make an interruption

    monkeypatch.setattr(multiprocessing.context.ForkServerProcess, "start", killed)
    monkeypatch.setattr(isolated, "STARTS", 2)
    with pytest.raises(OSError, match=r"no worker process could be started, 2 times in a row \(EOFError: unexpected"):
        Isolated.start(nothing, ["torch"])


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGINT, 0.3), (signal.SIGINT, 0.8), (signal.SIGTERM, 0.5), (signal.SIGHUP, 1.2)]
)
def test_an_early_signal_is_no_traceback(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], number: signal.Signals, moment: float
) -> None:
    process = start(*GRID)
    time.sleep(moment)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert "Traceback" not in errors or "site.py" in errors  # Python itself was not there yet
    assert process.returncode in (130, -number, 0, 1 if "site.py" in errors else 130)


def test_little_is_imported_before_an_interruption_is_taken_care_of() -> None:
    where = str(Path(membench.__file__).parents[1])
    script = f"import sys; sys.path[:0] = [{where!r}]; import membench.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert not {"typing", "re", "importlib.util", "click"} & set(done.stdout.split())


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can be longer than a few bytes: a full disk for those who cannot make one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_sentence_that_names_the_file(tmp_path: Path) -> None:
    results = tmp_path / "results"
    execute(trials(), Store(results), Registry(), Execution(executor="inline"))
    baseline = Baseline(suite="tiny", suite_version=1, models=(), seeds=(0,), samples=())
    writes: dict[str, Callable[[Path], Any]] = {
        "board.html": lambda path: report([results], path, Registry()),
        "all.jsonl": lambda path: pack([results], path),
        "figure.svg": lambda path: plot([results], path, "N", "accuracy"),
        "tiny.json": lambda path: write_baseline(path, baseline),
        "verified.json": lambda path: write_marks(path.parent, []),
    }
    for name, write in writes.items():
        path = tmp_path / name
        with full_disk(), pytest.raises(FileError) as caught:
            write(path)
        assert f"'{path}': File too large" in str(caught.value)
        assert caught.value.exit_code == 3
        write(path)  # with room, all is well
        assert path.stat().st_size > 8
    assert not list(tmp_path.rglob("*.part"))


def test_a_run_on_a_full_disk_ends_with_exit_3_and_keeps_what_is_there(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    store = Store(tmp_path / "results")
    execute(trials(), store, Registry(), Execution(executor="inline"))
    before = records(store.root)
    with full_disk():
        process = start("run", *GRID[1:6], "N=4,5", *GRID[7:])
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 3
    *_, line = errors.splitlines()  # on a busy machine a run also tells how far it is
    assert "Traceback" not in errors
    assert line.startswith("membench: 'results/bigram/lookup/")
    assert line.endswith(".json': File too large; finished trials are kept")
    assert records(store.root) == before


def test_a_folder_that_is_removed_in_the_middle_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    run = Run.of(trials(), store, Registry(), Execution(executor="inline"))
    removed: list[bool] = []

    def remove(path: Path) -> None:
        if not removed:
            removed.append(True)
            shutil.rmtree(path)

    watcher = Watcher(finished=lambda trial, record: remove(store.root))
    execute(run.pending, store, Registry(), run.execution, watcher)
    with pytest.raises(OSError, match="the record of a trial that ended is no longer there") as caught:
        [run._new(trial) for trial in run.trials]
    assert caught.value.filename == str(store.path(run.trials[0]))
    assert all(record.complete for record in Run.of(trials(), store, Registry(), run.execution).carry_out(show=False))
    assert count(store.root) == 3


@on_linux  # where even root may not write there
def test_a_folder_that_nobody_may_write_to_is_named() -> None:
    with pytest.raises(FileError, match="cannot write records to '/sys/results'") as caught:
        Store(Path("/sys/results")).check()
    assert caught.value.exit_code == 3
