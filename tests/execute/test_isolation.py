"""Plugins that hang, die, eat memory, leave something behind or change everybody's state: each costs its own trial."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from membench.engine.execution import Execution, parse_memory
from membench.errors import UsageError
from membench.execute import driver, process_group
from membench.execute.driver import execute
from membench.execute.executor import Ended, Message, Probed
from membench.execute.isolated import start_server
from membench.execute.job import Job
from membench.execute.limits import Limits
from membench.execute.local import PRELOADED
from membench.interface.process_state import process_state_kept
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records.record import Record
from membench.records.store import Store

ODD = """
import os, subprocess, sys, threading, time
from dataclasses import dataclass
from membench.api import Architecture, hookimpl, option

@dataclass(frozen=True)
class Config:
    fault: str = option("none", help="what goes wrong")

def build(shape, config):
    from torch import nn

    print("built with fault", config.fault)
    if config.fault == "import":
        import a_module_that_is_not_there
    if config.fault == "exit":
        os._exit(1)
    if config.fault == "system exit":
        sys.exit("goodbye")
    if config.fault == "hang":
        while True:
            time.sleep(1)
    if config.fault == "spin":
        with open(os.environ["PID_FILE"], "w") as file:
            file.write(str(os.getpid()))
        import re
        re.match(r"(a+)+$", "a" * 64 + "b")  # native code that never ends, and keeps the interpreter to itself
    if config.fault == "eat":
        import numpy as np
        eaten = []
        while True:
            eaten.append(np.ones(8 << 20))
    if config.fault == "leave":
        threading.Thread(target=time.sleep, args=(600,)).start()
        child = os.fork()
        if child == 0:
            time.sleep(600)
        sleeper = subprocess.Popen(["sleep", "600"])
        print(f"left {child} {sleeper.pid}")
    return nn.Sequential(nn.Embedding(shape.vocab, 4), nn.Flatten(), nn.Linear(4 * shape.length, shape.answers))

def check(shape, config):
    if config.fault == "check":
        raise ZeroDivisionError("of a check")

def identifiable(shape, config):
    if config.fault == "identifiable":
        raise RuntimeError("of counting")
    return 1

@hookimpl
def membench_architectures():
    return [Architecture(name="odd", summary="odd", reference="none", config=Config, build=build, check=check,
                         identifiable=identifiable, embeddings=("word.",))]
"""


@pytest.fixture
def odd(tmp_path: Path) -> Registry:
    path = tmp_path / "odd_plugin.py"
    path.write_text(ODD, encoding="utf-8")
    return Registry(Selection(files=(str(path),)))


def run(registry: Registry, out: Path, faults: str, **execution: Any) -> dict[str, Record]:
    request = Request(["odd"], ["bigram"], [f"fault={faults}"], ["N=4"], "quick", ["steps=2"], seeds=(0,))
    records = execute(plan(registry, request), Store(out), registry, Execution(**execution))
    return {record.architecture["config"]["fault"]: record for record in records}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_each_fault_costs_one_failed_record_and_the_rest_completes(odd: Registry, tmp_path: Path) -> None:
    faults = "eat,exit,import,system exit,check,leave,identifiable,none"
    records = run(odd, tmp_path / "out", faults, jobs=2, memory=1 << 30)
    errors = {fault: record.error for fault, record in records.items() if not record.complete}
    assert errors.keys() == {"eat", "exit", "import", "system exit", "check"}
    assert "bytes of memory: --memory allows 1,073,741,824" in str(errors["eat"])
    assert errors["exit"] == "the worker process ended with code 1, and so did the one before it"
    assert "No module named 'a_module_that_is_not_there'" in str(errors["import"])
    assert "SystemExit: goodbye" in str(errors["system exit"])
    assert "ZeroDivisionError: of a check" in str(errors["check"])
    for fault in ("eat", "exit", "none"):
        assert f"built with fault {fault}\n" in records[fault].trace["output"]
    left = records["leave"].trace["output"].partition("left ")[2].split()[:2]
    assert [is_alive(int(pid)) for pid in left] == [False, False]
    notes = records["identifiable"].trace["notes"]
    assert "identifiable failed: RuntimeError: of counting" in notes
    assert any(note.startswith("embeddings: no parameter is under 'word.'") for note in notes)
    assert len(list((tmp_path / "out").rglob("*.json"))) == 8


def test_a_model_that_hangs_is_stopped(odd: Registry, tmp_path: Path) -> None:
    record = run(odd, tmp_path / "out", "hang", jobs=1, timeout=2)["hang"]
    assert record.error == "stopped after 2 s: --timeout allows 2 s"
    assert record.status == "failed"


ENDLESS = """
from dataclasses import dataclass
from membench.api import Architecture, hookimpl

@dataclass(frozen=True)
class Config:
    pass

def exits(shape, config):
    import os
    os._exit(1)

def hangs(shape, config):
    import time
    while True:
        time.sleep(1)

def eats(shape, config):
    held = []
    while True:
        held.append(bytearray(64 << 20))

@hookimpl
def membench_architectures():
    return [Architecture(name=build.__name__, summary="-", reference="-", config=Config, build=build)
            for build in (exits, hangs, eats)]
"""


def test_one_sweep_survives_all_three(tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS, encoding="utf-8")
    command = [sys.executable, "-m", "membench", "run", "--plugin", str(path), "--model", "exits,hangs,eats,aot"]
    command += ["--task", "bigram", "-T", "N=4", "--protocol", "quick", "-P", "steps=5", "--seeds", "1"]
    command += ["--timeout", "10", "--memory", "1G", "--jobs", "4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    records = [Record.from_json(file.read_text("utf-8")) for file in (tmp_path / "results").rglob("*.json")]
    errors = {record.architecture["name"]: record.error for record in records}
    assert len(records) == 4
    assert errors["aot"] is None
    assert errors["exits"] == "the worker process ended with code 1, and so did the one before it"
    assert errors["hangs"] == "stopped after 10 s: --timeout allows 10 s"
    assert re.fullmatch(
        r"stopped when it held [\d,]+ bytes of memory: --memory allows 1,073,741,824", str(errors["eats"])
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs the signal of a closed pipe")
def test_no_worker_survives_its_driver(odd: Registry, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-m", "membench", "run", "--plugin", str(tmp_path / "odd_plugin.py"), "--model", "odd"]
    command += ["-M", "fault=spin", "--task", "bigram", "-T", "N=4", "--protocol", "quick", "--seeds", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PID_FILE": str(pid_file)})
    wait_for(lambda: pid_file.exists() and bool(pid_file.read_text("ascii")))
    worker = int(pid_file.read_text("ascii"))
    assert is_alive(worker)
    process.kill()
    process.wait()
    wait_for(lambda: not is_alive(worker))


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


HOSTILE = """
import os, random, warnings
from dataclasses import dataclass
import numpy as np, torch
from membench.api import Architecture, hookimpl, option

def spoil(where):
    os.chdir("/")
    os.environ["MEMBENCH_SPOILT"] = where
    random.seed(1)
    np.random.seed(1)
    np.seterr(all="raise")
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)
    warnings.simplefilter("error")
    torch.nn.functional.cross_entropy = lambda logits, *more, **options: logits[..., 0] * 0

spoil("import")

@dataclass(frozen=True)
class Config:
    width: int = option(2, help="width")

def build(shape, config):
    spoil("build")
    return torch.nn.Sequential(torch.nn.Embedding(shape.vocab, 2), torch.nn.Flatten(),
                               torch.nn.Linear(2 * shape.length, shape.answers))

@hookimpl
def membench_architectures():
    return [Architecture(name="hostile", summary="hostile", reference="none", config=Config, build=build)]
"""


def test_a_hostile_plugin_changes_no_number_of_the_next_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hostile_plugin.py"
    path.write_text(HOSTILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from membench.engine.execution import Execution\nfrom membench.execute.driver import execute\n"
        "from membench.interface.registry import Registry, Selection\nfrom membench.plan.request import Request, plan\n"
        "from membench.records.store import Store\n"
        "registry = Registry(Selection(files=tuple(sys.argv[3:])))\n"
        "request = Request(sys.argv[2].split(','), ['bigram'], (), ['N=4'], 'quick', ['steps=5'], seeds=(0, 1))\n"
        "execute(plan(registry, request), Store(Path(sys.argv[1])), registry, Execution(jobs=1, kernel='off'))\n"
        "assert 'MEMBENCH_SPOILT' not in os.environ\n"
    )
    for out, models, *files in (("alone", "lookup"), ("beside", "hostile,lookup", str(path))):
        subprocess.run([sys.executable, "-c", script, out, models, *files], check=True, timeout=300)
    found = [
        {
            file.name: Record.from_json(file.read_text("utf-8")).metrics
            for file in (tmp_path / out).rglob("lookup/*.json")
        }
        for out in ("alone", "beside")
    ]
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_what_a_plugin_sets_for_the_whole_process_is_taken_back(tmp_path: Path) -> None:
    import torch

    before = os.getcwd(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.random.get_rng_state()
    handler = signal.getsignal(signal.SIGTERM)  # not SIGINT, which a shell ignores in what it runs in the background
    with process_state_kept():
        os.chdir(tmp_path)
        os.environ["MEMBENCH_SPOILT"] = "yes"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(1)
    assert (os.getcwd(), torch.get_default_dtype(), torch.is_grad_enabled()) == before[:3]
    assert torch.equal(torch.random.get_rng_state(), before[3])
    assert "MEMBENCH_SPOILT" not in os.environ
    assert signal.getsignal(signal.SIGTERM) == handler != signal.SIG_IGN


def test_a_worker_imports_only_the_plugins_that_its_trial_needs(odd: Registry) -> None:
    def needed(architecture: str) -> set[str]:
        return {name for name, _ in odd.needed_for(architecture, "bigram").needed or ()}

    assert "odd_plugin" in needed("odd")
    assert "odd_plugin" not in needed("lookup")
    narrowed = Registry(odd.needed_for("lookup", "bigram"))
    assert {"lookup"} <= set(narrowed.architectures)
    assert "odd" not in narrowed.architectures
    names = {bound.name for bound in odd.bounds if bound.architecture in (None, "lookup")}
    assert {bound.name for bound in narrowed.bounds} >= names


class Scripted:
    """An executor that says what it is told to, job by job."""

    def __init__(self, answer: Callable[[Job], list[Message]]) -> None:
        self.answer, self.jobs = answer, list[Job]()

    def submit(self, jobs: deque[Job], report: Any) -> Generator[Message, None, None]:
        while jobs:
            self.jobs.append(jobs.popleft())
            yield from self.answer(self.jobs[-1])


def scripted(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Job], list[Message]]) -> Scripted:
    made = Scripted(answer)
    monkeypatch.setattr(driver, "executor_of", lambda execution, registry: made)
    return made


def measure(out: Path, protocol: str = "quick", seeds: tuple[int, ...] = (0, 1)) -> list[Record]:
    registry = Registry()
    trials = plan(registry, Request(["lookup"], ["bigram"], (), ["N=4"], protocol, seeds=seeds))
    return execute(trials, Store(out), registry, Execution())


def test_a_job_that_dies_is_tried_once_more_seed_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = scripted(monkeypatch, lambda job: [Ended(job, "the worker process was killed by signal 9", died=True)])
    records = measure(tmp_path, seeds=(0, 1, 2))
    tried = [(job.seeds, job.attempt) for job in executor.jobs]
    assert tried == [((0, 1), 1), ((0,), 2), ((1,), 2), ((2,), 1), ((2,), 2)]
    assert [record.error for record in records] == [
        "the worker process was killed by signal 9, and so did the one before it"
    ] * 3


def test_a_probe_that_is_stopped_costs_all_trials_of_its_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = scripted(monkeypatch, lambda job: [Ended(job, "stopped after 10 s: --timeout allows 10 s", "its words")])
    records = measure(tmp_path, "converged")
    assert len(executor.jobs) == 1  # the other probe and the trials are not even tried
    reason = "while its learning rate was chosen: stopped after 10 s: --timeout allows 10 s"
    assert [(record.seed, record.error) for record in records] == [(0, reason), (1, reason)]
    assert records[0].trace["output"] == "its words"


def test_an_interruption_loses_no_probe_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(job: Job) -> list[Message]:
        if job.part == 1:
            raise KeyboardInterrupt
        return [Probed(job, [0.1, 0.2], 1.5), Ended(job)]

    scripted(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, "converged")
    assert len(list(tmp_path.rglob("*.probes"))) == 1

    def continued(job: Job) -> list[Message]:
        return [Ended(job, "enough")] if job.seeds else [Probed(job, [0.3, 0.4], 2.0), Ended(job)]

    executor = scripted(monkeypatch, continued)
    measure(tmp_path, "converged")
    assert [(job.seeds, job.part) for job in executor.jobs] == [((), 1), ((0,), 0), ((1,), 0)]
    assert {(job.probed, job.probe_seconds) for job in executor.jobs if job.seeds} == {
        ("[[0.1, 0.2], [0.3, 0.4]]", 3.5)
    }
    assert not list(tmp_path.rglob("*.probes"))  # all trials have their records


def test_probes_of_other_code_or_of_no_sense_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda job: [Probed(job, [0.1]), Ended(job)] if job.part == 0 else 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        measure(tmp_path, "converged")
    (kept,) = tmp_path.rglob("*.probes")
    for content in (kept.read_text("utf-8").replace('"code": "', '"code": "0'), "{", '{"scores": {"0": [true]}}'):
        kept.write_text(content, encoding="utf-8")
        executor = scripted(monkeypatch, lambda job: [Ended(job, "no")])
        measure(tmp_path, "converged")
        assert executor.jobs[0].part == 0


def test_limits_in_words() -> None:
    assert parse_memory("2G") == parse_memory("2GiB") == parse_memory("2048 mb") == 2 << 30
    for text in ("", "2X", "-1G", "lots"):
        with pytest.raises(UsageError, match="give a size such as 2G"):
            parse_memory(text)
    with pytest.raises(UsageError, match="at least 512M"):
        Execution(memory=1000)
    with pytest.raises(UsageError, match="a number of seconds above 0"):
        Execution(timeout=0)
    with pytest.raises(UsageError, match="'inline' has none"):
        Execution(timeout=1, executor="inline")
    assert Limits().patience is None


def test_memory_is_that_of_the_whole_group() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        wait_for(lambda: process_group.memory_of({child.pid})[child.pid] > 0)
        assert child.pid in {process for group, process, size in process_group._by_ps() if group == child.pid}
        shared = process_group.memory_of({child.pid}, enough=1 << 40)[child.pid]
        assert 0 < process_group.memory_of({child.pid})[child.pid] < shared
    finally:
        process_group.kill(child.pid)
        child.wait()
    assert process_group.memory_of({child.pid}) == {child.pid: 0}


def test_facts_that_do_not_fit_are_refused_with_their_bytes() -> None:
    registry = Registry()
    with pytest.raises(UsageError, match=r"its 10,000,000,000 contexts take 320,000,000,000 bytes of memory"):
        plan(registry, Request(["lookup"], ["bigram"], (), ["N=100000"]))


def test_what_ended_workers_leave_behind_is_removed_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[str] = []
    monkeypatch.setattr(forkserver, "ensure_running", lambda: options.extend(sys.warnoptions))
    start_server(multiprocessing.get_context("forkserver"), PRELOADED)
    assert "ignore:resource_tracker:UserWarning" in options
    assert "ignore:resource_tracker:UserWarning" not in sys.warnoptions
