"""Ray: what can be said without a cluster, a sweep on one that is started for it, and one that loses driver and node.

Everything here listens on loopback only, and ends when the pipe to its standard input does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from membench.engine.execution import Execution
from membench.errors import MembenchError, UsageError
from membench.execute import ray_worker
from membench.execute.executor import Ended, Measured
from membench.execute.job import Job, make_jobs
from membench.execute.ray import _check_same, _Cluster, _join, _resources, code_of, connect
from membench.execute.ray_worker import Failure, run_on_node
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan

Call = Callable[..., subprocess.CompletedProcess[str]]
TINY = ("--model", "lookup", "--task", "bigram", "-T", "N=4", "--protocol", "quick", "-P", "steps=2")
# One seed for each point, so that what is left after a kill is grouped as it was before.
GRID = ("--model", "aot", "--task", "bigram", "-T", "N=8", "-M", "H=1:16", "--protocol", "quick", "-P", "steps=300",
        "--kernel", "off", "--seeds", "1")  # fmt: skip
TRIALS = 16

# Nodes of Ray listen on loopback only if they believe that clusters are impossible here.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0"}  # fmt: skip
TWO_NODES = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster()
options = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster.add_node(**options)
other = cluster.add_node(**options)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(other, allow_graceful=False)
    print("killed", flush=True)
cluster.shutdown()
"""


def test_a_missing_extra_is_one_sentence_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        UsageError, match=r"the executor 'ray' needs Ray; install it with: pip install 'membench\[ray\]'"
    ):
        connect(Execution(executor="ray"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpus": 2.0}, "cpus: only the executor 'ray' uses that, and this is 'local'"),
        ({"gpus": 1.0, "address": "auto"}, "gpus and address: only the executor 'ray'"),
        ({"executor": "ray", "cpus": 0.0}, "cpus=0: a number above 0"),
        ({"executor": "ray", "cpus": float("nan")}, "cpus=nan: a number above 0"),
        ({"executor": "ray", "gpus": 1.5}, "gpus=1.5: a share of one GPU such as 0.25, or a whole number"),
        ({"executor": "ray", "gpus": -1.0}, "gpus=-1: a share of one GPU"),
    ],
)
def test_what_ray_cannot_set_aside_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Execution(**options)


def test_a_gpu_is_asked_for_where_the_device_is_one() -> None:
    assert _resources(Execution(executor="ray")) == {"num_cpus": 1.0, "num_gpus": 0.0}
    assert _resources(Execution("cuda", executor="ray")) == {"num_cpus": 1.0, "num_gpus": 1.0}
    assert _resources(Execution("cuda", executor="ray", cpus=0.5, gpus=0.25)) == {"num_cpus": 0.5, "num_gpus": 0.25}
    with pytest.raises(UsageError, match="Ray chooses the GPU"):
        _resources(Execution("cuda:1", executor="ray"))
    with pytest.raises(UsageError, match="--gpus 0"):
        _resources(Execution("cuda", executor="ray", gpus=0.0))


def nodes(*alive: bool, **resources: float) -> Any:
    """A stand-in for Ray that knows of nodes."""
    rows = [{"Alive": one, "Resources": resources, "NodeManagerAddress": f"10.0.0.{i}"} for i, one in enumerate(alive)]
    return SimpleNamespace(nodes=lambda: rows)


def test_room_is_what_the_living_nodes_have() -> None:
    ray = nodes(True, True, False, CPU=8.0, GPU=1.0)
    assert _Cluster(ray, Execution(executor="ray")).workers == 16
    assert _Cluster(ray, Execution(executor="ray", cpus=3.0)).workers == 4
    assert _Cluster(ray, Execution("cuda", executor="ray", gpus=0.25)).workers == 8
    assert _Cluster(ray, Execution(executor="ray", jobs=5)).room() == 5


def test_nodes_that_went_before_this_run_are_not_its_losses() -> None:
    rows = nodes(True, True, False, CPU=2.0).nodes()
    cluster = _Cluster(SimpleNamespace(nodes=lambda: rows), Execution(executor="ray"))
    assert cluster.describe(9) == "2 nodes, 4 of 4 workers busy"
    rows[0]["Alive"] = False
    cluster.looked = 0.0
    assert cluster.room() == 4
    assert cluster.describe(1) == "1 node (1 lost), 1 of 2 workers busy"


def test_a_job_that_fits_on_no_node_is_refused_with_what_they_have() -> None:
    with pytest.raises(UsageError, match=r"one job \(1 CPUS, 2 GPUS\); it has: 10.0.0.0 with 4 CPU, 1 GPU"):
        _Cluster(nodes(True, CPU=4.0, GPU=1.0), Execution("cuda", executor="ray", gpus=2.0))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:9", "nothing answers at '127.0.0.1:9' .*ray start --head"),
        ("127.0.0.1:99999999", "nothing answers at '127.0.0.1:99999999'"),
        ("garbage", "address 'garbage' is neither HOST:PORT nor 'auto'"),
        ("ray://127.0.0.1:10001", "run membench on a node of the cluster"),
    ],
)
def test_an_address_where_no_cluster_is_costs_one_sentence(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _join(SimpleNamespace(), address)  # Ray itself is not asked: it would try for minutes


def test_a_process_stays_with_the_cluster_that_it_joined() -> None:
    _check_same("10.0.0.1:6379", None)
    _check_same("10.0.0.1:6379", "auto")
    with pytest.raises(UsageError, match=r"connected to the Ray cluster at .* already"):
        _check_same("10.0.0.1:6379", "10.0.0.2:6379")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_worker, "_here", lambda: "10.0.0.7 (seven)")
    monkeypatch.setattr(ray_worker, "ONE_THREAD", {})  # this process is no Ray worker
    ray_worker._registry.cache_clear()


def job_of(registry: Registry, model: str, **execution: Any) -> Job:
    trials = plan(registry, Request([model], ["bigram"], (), ["N=4"], "quick", ["steps=2"], seeds=(0, 1)))
    return replace(make_jobs(trials, registry.selection, Execution(executor="ray", **execution))[0], seeds=(0, 1))


def content(registry: Registry, job: Job, **changes: Any) -> bytes:
    import pickle

    architecture = replace(code_of(registry.architecture(job.point.architecture)), **changes)
    return pickle.dumps((job, architecture, code_of(registry.task("bigram"))))


@pytest.mark.usefixtures("here")
def test_a_worker_says_all_that_the_job_says() -> None:
    registry = Registry()
    job = job_of(registry, "lookup", cpus=0.5)
    *measured, ended = run_on_node(content(registry, job))  # type: ignore[misc]
    assert [message.result.record.seed for message in measured if isinstance(message, Measured)] == [0, 1]
    assert isinstance(ended, Ended)


@pytest.mark.usefixtures("here")
def test_a_plugin_that_a_node_does_not_have_is_named_with_the_node(plugin_file: Path) -> None:
    registry = Registry(Selection(files=(str(plugin_file),)))
    job = job_of(registry, "toy")
    missing = run_on_node(content(registry, replace(job, selection=Selection())))
    assert isinstance(missing, Failure)
    assert missing.text.startswith("node 10.0.0.7 (seven): architecture 'toy' of the plugin")
    assert "toy_plugin.py is not here; install it on every node" in missing.text
    assert missing.exit_code == 3
    other = run_on_node(content(registry, job, version=2))
    assert isinstance(other, Failure)
    assert "other code than the driver's" in other.text
    sent = content(registry, job)
    plugin_file.unlink()
    (gone,) = run_on_node(sent)  # type: ignore[misc]
    assert isinstance(gone, Ended)
    assert f"plugin file '{plugin_file}' does not exist" in gone.reason


@pytest.mark.usefixtures("here")
def test_a_file_that_was_edited_is_read_again(plugin_file: Path) -> None:
    selection = Selection(files=(str(plugin_file),))
    for text in ("a toy", "another toy"):
        plugin_file.write_text(plugin_file.read_text().replace("a toy", text))
        registry = Registry(selection)
        job = job_of(registry, "toy")
        assert ray_worker._checked(job, code_of(registry.architecture("toy")), code_of(registry.task("bigram")))


# With clusters


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """By their path, without what says when and where."""
    rows = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.json")}
    return {path: {name: row[name] for name in row if name not in ("run", "environment")} for path, row in rows.items()}


def without_progress(text: str) -> list[str]:
    """What else was said: on a busy machine a run takes so long that it tells how far it is."""
    return [line for line in text.splitlines() if not re.match(r"membench: \d+/\d+ trials, ", line)]


def alive(mark: str) -> list[str]:
    """The command lines of processes that mention something."""
    lines = (path.read_bytes().replace(b"\0", b" ").decode(errors="replace") for path in command_lines())
    return [line for line in lines if mark in line]


def command_lines() -> Iterator[Path]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() and path.parent.name != str(os.getpid()):
                yield path
        except OSError:
            pass  # it has just ended


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"waited {seconds} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short path, because Ray puts sockets below it. Nothing may be left there or run from there."""
    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp") as folder:
        yield Path(folder)
        wait_until(lambda: not alive(folder), f"still running: {alive(folder)}", 30)


def listening() -> set[str]:
    """Addresses in hexadecimal, as Linux shows them, of all that listens."""
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A"}


def test_a_cluster_of_our_own_gives_the_records_of_the_local_executor(
    tmp_path: Path, temporary: Path, membench: Call
) -> None:
    pytest.importorskip("ray")
    words = ("sweep", "--model", "aot,lookup", "--task", "bigram", "-T", "N=5", "-M", "aot.H=1,2", "--seeds", "3",
             "--protocol", "quick", "-P", "steps=20", "--json")  # fmt: skip
    home = {"TMPDIR": str(temporary), "HOME": str(temporary), "RAY_ADDRESS": ""}
    on_ray = membench(*words, "--out", "ray", "--executor", "ray", "--cpus", "2", **home)
    assert on_ray.returncode == 0, on_ray.stderr
    assert without_progress(on_ray.stderr) == []
    assert json.loads(on_ray.stdout)
    assert membench(*words, "--out", "local").returncode == 0
    assert len(records(tmp_path / "local")) == 9
    assert records(tmp_path / "ray") == records(tmp_path / "local")
    assert not list(temporary.glob("*membench-ray*"))
    assert not (temporary / ".ray").exists()


def test_a_cluster_of_our_own_listens_on_loopback_and_ends_with_its_driver(temporary: Path) -> None:
    pytest.importorskip("ray")
    if not Path("/proc/net/tcp").exists():
        pytest.skip("what listens is only looked up on Linux")
    script = (
        "import signal, time\n"
        "from membench.engine.execution import Execution\n"
        "from membench.execute.ray import connect\n"
        "before = signal.getsignal(signal.SIGTERM)\n"
        "connect(Execution(executor='ray', jobs=1))\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
        "print('there', flush=True)\n"
        "time.sleep(600)\n"
    )
    before = listening()
    environment = {**os.environ, "TMPDIR": str(temporary), "RAY_ADDRESS": ""}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "there\n"
        new = {address.partition(":")[0] for address in listening() - before}
        driver.kill()
    assert new
    assert new <= {"0100007F", "0000000000000000FFFF00000100007F"}, "127.0.0.1, as such and as IPv6 writes it"
    wait_until(lambda: not alive(str(temporary)), "the cluster outlived its driver", 30)


@dataclass
class TwoNodes:
    """A cluster of two nodes on loopback, one of which can be killed."""

    process: subprocess.Popen[str]
    address: str
    environment: dict[str, str]
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    def kill_a_node(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "killed\n"

    def start(self, folder: Path, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "membench.cli", *words, "--executor", "ray", "--address", self.address]
        driver = subprocess.Popen(
            command, cwd=folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.drivers.append(driver)
        return driver


@pytest.fixture
def two_nodes(temporary: Path) -> Iterator[TwoNodes]:
    pytest.importorskip("ray")
    environment = {**os.environ, **LOOPBACK, "RAY_TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", TWO_NODES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, env=environment) as process:  # fmt: skip
        assert process.stdout is not None
        nodes = TwoNodes(process, process.stdout.readline().strip(), environment)
        yield nodes
        for driver in nodes.drivers:  # of a test that failed
            if driver.poll() is None:
                driver.kill()
                driver.communicate()


def install(folder: Path, text: str) -> None:
    """A plugin as if it were installed, for whoever has this folder in PYTHONPATH."""
    (folder / "only_here-1.5.dist-info").mkdir(parents=True)
    (folder / "only_here-1.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: only-here\nVersion: 1.5\n"
    )
    (folder / "only_here-1.5.dist-info" / "entry_points.txt").write_text("[membench]\nonly-here = only_here\n")
    (folder / "only_here.py").write_text(text)


def test_a_sweep_survives_its_driver_and_a_node(
    tmp_path: Path, two_nodes: TwoNodes, membench: Call, plugin_file: Path
) -> None:
    def done() -> int:
        return len(list((tmp_path / "ray").rglob("*.json")))

    driver = two_nodes.start(tmp_path, "sweep", *GRID, "--out", "ray")
    wait_until(lambda: done() >= 2, "no records")
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    first = done()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray").rglob("*.json")}
    assert first < TRIALS

    driver = two_nodes.start(tmp_path, "sweep", *GRID, "--out", "ray")
    wait_until(lambda: done() >= first + 3, "no more records")
    two_nodes.kill_a_node()
    assert done() < TRIALS
    _, errors = driver.communicate(timeout=120)
    assert (driver.returncode, without_progress(errors)) == (0, [])
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())

    assert membench("sweep", *GRID, "--out", "local").returncode == 0
    assert len(records(tmp_path / "local")) == TRIALS
    assert records(tmp_path / "ray") == records(tmp_path / "local")

    # what follows needs no second cluster: a node that lacks a plugin, and a plugin that kills its process
    install(tmp_path / "site", plugin_file.read_text())
    two_nodes.environment["PYTHONPATH"] = str(tmp_path / "site")
    tiny = ("run", "--model", "toy", "--task", "bigram", "-T", "N=4", "--protocol", "quick", "-P", "steps=2")
    driver = two_nodes.start(tmp_path, *tiny, "--seeds", "2")
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 3
    assert "node 127.0.0.1 (" in errors
    assert "architecture 'toy' of the plugin only-here 1.5 is not here; install it on every node" in errors

    del two_nodes.environment["PYTHONPATH"]
    options = ("--seeds", "1", "-M", "fault=none,die", "--plugin", str(plugin_file), "--out", "toys")
    driver = two_nodes.start(tmp_path, *tiny, *options)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 3
    assert "1 of 2 trials failed" in errors
    assert "ended with code 7" in errors


def test_messages_of_a_cancelled_run_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends what runs, and what Ray says of it by then does not matter."""
    from membench.execute import ray as module
    from membench.execute.ray import Ray

    cancelled: list[Any] = []

    def cancel(reference: Any, force: bool) -> None:
        cancelled.append((reference, force))
        raise MembenchError("the cluster has gone")

    registry = Registry()
    job = job_of(registry, "lookup")
    task = SimpleNamespace(remote=lambda content: "reference")
    fake = SimpleNamespace(
        nodes=nodes(True, CPU=1.0).nodes,
        remote=lambda **options: lambda function: task,
        wait=lambda references, **more: pytest.fail("nobody asked"),
        cancel=cancel,
    )
    monkeypatch.setattr(module, "connect", lambda execution: fake)

    def stop(*told: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(Ray(job.execution, registry).submit(deque([job]), stop))
    assert cancelled == [("reference", True)]
