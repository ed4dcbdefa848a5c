"""What a Ray worker runs: one job, through another executor. Light to import: threads are limited before numpy is."""

from __future__ import annotations

import functools
import os
import pickle
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from membench.threads import ONE_THREAD

if TYPE_CHECKING:
    from membench.execute.executor import Message
    from membench.execute.job import Job
    from membench.interface.origin import Code
    from membench.interface.registry import Registry, Selection


@dataclass(frozen=True)
class Failure:
    """What makes no sense to try again, here or on another node: it stops the run."""

    text: str
    exit_code: int


def run_on_node(content: bytes) -> list[Message] | Failure:
    """All that a job says. It comes as bytes, because what Ray unpickles would import numpy before this runs."""
    os.environ.update(ONE_THREAD)  # Ray sets as many threads as CPUs, and then numbers would depend on --cpus
    return _run(*pickle.loads(content))


def _run(job: Job, architecture: Code, task: Code) -> list[Message] | Failure:
    """Our own code runs in this process, which stays warm.

    A plugin's code gets a process of its own, as in the executor `local`: what it leaves behind ends with it. So does a
    trial with a limit.
    """
    from membench.errors import MembenchError
    from membench.execute.executor import executor_of

    ours = architecture.origin.is_built_in and task.origin.is_built_in
    limited = job.execution.timeout or job.execution.memory  # which takes a process that can be ended
    kind = "inline" if ours and not limited else "local"
    try:
        registry = _checked(job, architecture, task)
        execution = replace(job.execution, executor=kind, jobs=1, cpus=None, gpus=None, address=None)
        executor = executor_of(execution, registry)
        return list(executor.submit(deque([replace(job, execution=execution)]), lambda *told: None))
    except MembenchError as error:
        return Failure(f"node {_here()}: {error}", error.exit_code)


def _checked(job: Job, architecture: Code, task: Code) -> Registry:
    """The plugins of this node. PluginError unless they hold the code that the driver has."""
    reason = _difference(job, architecture, task)
    if reason:
        _registry.cache_clear()  # a file may have been edited since this worker read it
        reason = _difference(job, architecture, task)
    if reason:
        from membench.errors import PluginError

        raise PluginError(reason)
    return _registry(job.selection)


def _difference(job: Job, architecture: Code, task: Code) -> str:
    registry = _registry(job.selection)
    for kind, ours, known in (
        ("architecture", architecture, registry.architectures),
        ("task", task, registry.tasks),
    ):
        here: Any = known.get(ours.name)
        if here is None:
            failed = next((p for p in registry.plugins if p.distribution == ours.origin.distribution), None)
            why = f": {failed.reason}" if failed and failed.reason else ""
            return f"{kind} '{ours.name}' of the plugin {ours.origin} is not here{why}; install it on every node"
        if (here.version, here.origin) != (ours.version, ours.origin):
            return (
                f"{kind} '{ours.name}' is of the plugin {here.origin}, version {here.version}, and other code than the "
                f"driver's {ours.origin}, version {ours.version}; install the same on every node"
            )
    return ""


@functools.lru_cache(maxsize=64)
def _registry(selection: Selection) -> Registry:
    """Loading plugins takes longer than a small job."""
    from membench.interface.registry import Registry

    return Registry(selection)


def _here() -> str:
    import platform

    import ray

    return f"{ray.util.get_node_ip_address()} ({platform.node()})"
