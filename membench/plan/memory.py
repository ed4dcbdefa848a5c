"""What would not fit into memory, refused before anything runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from membench.errors import UsageError
from membench.interface.declarations import Task

WORD = 8  # bytes of a token, a label, a probability


def check_memory(task: Task[Any], config: Any, allowed: int | None = None) -> None:
    """UsageError for facts that do not fit, with the bytes of their arrays alone: training needs more.

    `allowed` is what a worker may hold, if that is limited.
    """
    try:
        contexts = task.contexts(config) if task.contexts else 0
        needed = contexts * (task.shape(config).length + 2) * WORD  # tokens, a label and a prior for each context
    except (Exception, SystemExit):
        return  # a fault of the plugin: its trial will fail, and say why
    there = machine_memory()
    if allowed is not None and needed > allowed:
        limit = f"--memory allows {allowed:,}"
    elif there is not None and needed > there:
        limit = f"this machine has {there:,}"
    else:
        return
    raise UsageError(
        f"{task.name}: its {contexts:,} contexts take {needed:,} bytes of memory, and {limit}; "
        "ask for fewer contexts or a smaller vocabulary"
    )


def machine_memory() -> int | None:
    """Bytes that processes here can have, or None where the system does not say."""
    found = []
    with suppress(ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ValueError, OSError):  # "max" is no number: then a container has no limit of its own
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return min(found, default=None)
