"""The executor `ray`: jobs as tasks of a Ray cluster, which is joined, or started on this machine alone."""

from __future__ import annotations

import atexit
import os
import pickle
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from membench.engine.execution import Execution, available_cores
from membench.errors import MembenchError, PluginError, UsageError
from membench.execute.executor import Ended, Measured, Message, Report
from membench.execute.isolated import environment
from membench.execute.job import Job
from membench.execute.ray_worker import Failure, run_on_node
from membench.interface.origin import Code
from membench.interface.registry import Registry
from membench.measure.environment import describe_git
from membench.temporary import temporary_folder
from membench.threads import ONE_THREAD

RETRIES = 3  # of a job whose worker or node died; Ray makes them, on whatever node is left
MAX_CALLS = 1000  # jobs of a worker before it is replaced, with whatever memory was lost in it; Ray's own is 1 on a GPU
OBJECT_STORE = 128 << 20  # bytes; only weights ever lie there, and the driver takes them out at once
REFRESH = 2.0  # seconds between two looks at the nodes
FOLDER = "membench-ray"

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the default of coming versions, announced by a warning
}
_ALONE = {
    **_QUIET,
    **ONE_THREAD,
    # the only switch, on Linux too, with which Ray takes 127.0.0.1 for an address and listens nowhere else
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",  # nobody reads them, and since 2.53 each process complains
    "RAY_worker_niceness": "0",  # Ray's own is 15, with which a worker gets next to nothing beside other work
    "RAY_task_oom_retries": str(RETRIES),  # without it, what is too large for the machine is tried for ever
}


@dataclass(frozen=True)
class Ray:
    """As many jobs at a time as the cluster has room for."""

    execution: Execution
    registry: Registry

    def submit(self, jobs: deque[Job], report: Report) -> Generator[Message, None, None]:
        if not jobs:
            return
        ray = connect(self.execution)
        cluster = _Cluster(ray, self.execution)
        options = {"max_retries": RETRIES, "max_calls": MAX_CALLS, **_resources(self.execution)}
        task = ray.remote(**options)(run_on_node)
        running: dict[Any, Job] = {}
        try:
            while jobs or running:
                while jobs and len(running) < cluster.room():
                    job = jobs.popleft()
                    running[task.remote(pickle.dumps((job, *self._code(job))))] = job
                    report(job, 0.0, cluster.describe(len(running)))
                for reference in _ended(ray, running):
                    job = running.pop(reference)
                    yield from _messages(ray, reference, job)
                    report(job, 1.0, cluster.describe(len(running)))
        finally:
            for reference in running:
                with suppress(Exception):  # the cluster may be what has gone
                    ray.cancel(reference, force=True)

    def _code(self, job: Job) -> tuple[Code, Code]:
        """What a node must have too: a record must not depend on where it was made."""
        architecture = self.registry.architecture(job.point.architecture)
        task = self.registry.task(job.point.task)
        return code_of(architecture), code_of(task)


def code_of(item: Any) -> Code:
    return Code(item.name, item.version, item.origin)


def workers(execution: Execution) -> int:
    """How many jobs the cluster runs at a time."""
    return _Cluster(connect(execution), execution).workers


def _ended(ray: Any, running: dict[Any, Job]) -> list[Any]:
    """All jobs that have ended by now, after waiting a while for the first."""
    ended, others = ray.wait(list(running), num_returns=1, timeout=REFRESH)
    if ended and others:
        more, _ = ray.wait(others, num_returns=len(others), timeout=0)
        ended += more
    return list(ended)


def _messages(ray: Any, reference: Any, job: Job) -> Iterator[Message]:
    try:
        answer = ray.get(reference)
    except ray.exceptions.RayError as error:
        yield Ended(job, _how_it_ended(ray, error))
        return
    if isinstance(answer, Failure):
        failure = MembenchError(answer.text)
        failure.exit_code = answer.exit_code
        raise failure
    for message in answer:
        if isinstance(message, Measured):  # the folder that a node works in says nothing of where this was asked for
            record = replace(message.result.record, git=describe_git())
            message = replace(message, result=message.result._replace(record=record))
        yield replace(message, job=job)


def _how_it_ended(ray: Any, error: Exception) -> str:
    """Of a job that Ray gave up. PluginError if membench itself is missing on a node, where every job would fail."""
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = str(error.cause).strip().splitlines()[-1] if str(error.cause).strip() else type(error.cause).__name__
        if "No module named 'membench" in str(error.cause):
            raise PluginError(f"node {error.ip} does not have membench; install there what is installed here")
        return f"on node {error.ip}: {cause}"
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "Ray ended its worker, because the node ran out of memory; --cpus makes fewer run side by side"
    if isinstance(error, (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)):
        return f"the Ray worker died, {RETRIES + 1} times in a row"
    return f"Ray gave it up: {' '.join(str(error).split())[:300]}"


def _resources(execution: Execution) -> dict[str, float]:
    """What Ray sets aside for each job. It also chooses the GPU, which a job then sees as its only one."""
    on_gpu = execution.device.startswith("cuda")
    gpus = execution.gpus if execution.gpus is not None else float(on_gpu)
    if on_gpu and not gpus:
        raise UsageError("--gpus 0 with --device cuda: give each job a share of a GPU, such as 0.25")
    if ":" in execution.device:
        raise UsageError(f"device '{execution.device}': Ray chooses the GPU; say 'cuda'")
    return {"num_cpus": execution.cpus or 1.0, "num_gpus": gpus}


@dataclass
class _Cluster:
    """What the nodes have room for, looked up again now and then: nodes come and go."""

    ray: Any
    execution: Execution
    nodes: int = 0
    lost: int = 0  # since this run began
    workers: int = 0
    looked: float = field(default=float("-inf"))
    lost_before: int | None = None

    def __post_init__(self) -> None:
        self._look()
        if not self.workers:
            needed = ", ".join(f"{value:g} {name[4:].upper()}" for name, value in _resources(self.execution).items())
            there = "; ".join(_has(node) for node in self.ray.nodes() if node["Alive"]) or "no node"
            raise UsageError(f"no node of the Ray cluster has room for one job ({needed}); it has: {there}")

    def room(self) -> int:
        """Jobs that may be with Ray at once. Twice what can run, so that no worker waits for its next job."""
        if time.monotonic() - self.looked > REFRESH:
            self._look()
        return self.execution.jobs or max(2 * self.workers, 1)

    def describe(self, running: int) -> str:
        lost = f" ({self.lost} lost)" if self.lost else ""
        nodes = f"{self.nodes} node{'s' * (self.nodes != 1)}"
        return f"{nodes}{lost}, {min(running, self.workers)} of {self.workers} workers busy"

    def _look(self) -> None:
        resources = _resources(self.execution)
        nodes = self.ray.nodes()
        alive = [node for node in nodes if node["Alive"]]
        dead = len(nodes) - len(alive)
        if self.lost_before is None:
            self.lost_before = dead
        self.looked, self.nodes, self.lost = time.monotonic(), len(alive), dead - self.lost_before
        self.workers = sum(_room(node, resources) for node in alive)


def _room(node: dict[str, Any], resources: dict[str, float]) -> int:
    needed = {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}
    return min(int(node["Resources"].get(name, 0) / each + 1e-6) for name, each in needed.items() if each)


def _has(node: dict[str, Any]) -> str:
    parts = [f"{node['Resources'].get(name, 0):g} {name}" for name in ("CPU", "GPU")]
    return f"{node['NodeManagerAddress']} with {', '.join(parts)}"


def connect(execution: Execution) -> Any:
    """Ray, connected: to the cluster of --address or RAY_ADDRESS, or to one that lives as long as this process.

    A process that is connected already stays so: several runs, such as those of a search, share one cluster.
    """
    address = execution.address or os.environ.get("RAY_ADDRESS")
    alone = address in (None, "", "local")
    with environment(_ALONE if alone else _QUIET), _signals_kept():
        ray = _imported()
        if not ray.is_initialized():
            _start(ray, execution) if alone else _join(ray, str(address))
        else:
            _check_same(ray.get_runtime_context().gcs_address, execution.address)
    return ray


_joined: list[str] = []  # the address that this process joined, as it was given; Ray knows it by another name


def _check_same(connected: str, address: str | None) -> None:
    if address and address not in ("auto", connected, *_joined):
        raise UsageError(f"address '{address}': this process is connected to the Ray cluster at {connected} already")


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError("the executor 'ray' needs Ray; install it with: pip install 'membench[ray]'") from None
    return ray


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray would make SIGTERM end this process on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _join(ray: Any, address: str) -> None:
    if "://" in address:
        raise UsageError(f"address '{address}': run membench on a node of the cluster, and give HOST:PORT or 'auto'")
    _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        _joined[:] = [address]
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"no Ray cluster could be joined at '{address}': {reason}") from None


def _knock(address: str) -> None:
    """Where nobody listens, Ray would try for minutes and then end this process."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdigit():
        raise UsageError(f"address '{address}' is neither HOST:PORT nor 'auto'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"nothing answers at '{address}' ({error}); a cluster begins with: ray start --head, "
            "and without --address and RAY_ADDRESS membench starts one on this machine"
        ) from None


def _start(ray: Any, execution: Execution) -> None:
    """A cluster of this machine, which nobody else can reach. It ends with this process, however that ends."""
    folder = _folder.enter_context(temporary_folder(Path(tempfile.gettempdir(), FOLDER)))
    atexit.register(_stop, ray)
    token = folder / "token"
    token.write_text(secrets.token_hex(32), encoding="ascii")  # else Ray leaves one in the user's home
    cores = execution.jobs * (execution.cpus or 1.0) if execution.jobs else available_cores()
    try:
        with environment({"RAY_AUTH_TOKEN_PATH": str(token)}):
            ray.init(
                address="local",
                num_cpus=max(1, round(cores)),
                include_dashboard=False,
                object_store_memory=OBJECT_STORE,
                log_to_driver=False,
                logging_level="ERROR",
                _node_ip_address="127.0.0.1",
                _temp_dir=str(folder),
            )
    except Exception as error:  # Ray raises just that when a part of it does not come up in time
        reason = " ".join(str(error).split())[:300]
        failure = MembenchError(f"Ray did not start on this machine: {reason}")
        failure.exit_code = 3
        raise failure from None
    (address,) = {node["NodeManagerAddress"] for node in ray.nodes()}
    if address != "127.0.0.1":  # Ray was imported before we could tell it
        _stop(ray)
        raise UsageError(
            "Ray would listen on all networks, because this program imported it before membench did; "
            "call ray.init() yourself, and membench uses that cluster"
        )


_folder = ExitStack()  # of the cluster that this process started: its sockets and logs


def _stop(ray: Any) -> None:
    ray.shutdown()
    _folder.close()
