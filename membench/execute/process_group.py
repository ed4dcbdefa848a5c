"""A worker and all that it starts, as one group of processes: ended together, and measured together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def end_with(lifeline: Connection) -> None:
    """Make this process the leader of a group, which ends when the other end of `lifeline` closes.

    On Linux by the kernel itself: a thread would wait for ever for the interpreter if native code kept it.
    """
    os.setsid()
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(lifeline.fileno(), fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(lifeline.fileno(), fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline.fileno(), fcntl.F_SETFL, fcntl.fcntl(lifeline.fileno(), fcntl.F_GETFL) | os.O_ASYNC)
        if lifeline.poll():  # it was closed before that
            kill(os.getpid())
    else:
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: Connection) -> None:
    lifeline.poll(None)  # nothing is ever sent: it returns when the other end has closed
    kill(os.getpid())


def kill(leader: int) -> None:
    """End a group; nothing happens if there is none."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def memory_of(leaders: set[int]) -> dict[int, int]:
    """Bytes of memory that each group holds, by its leader; groups that are not there hold none."""
    held = dict.fromkeys(leaders, 0)
    for group, size in _linux() if sys.platform == "linux" else _by_ps():
        if group in held:
            held[group] += size
    return held


def _linux() -> list[tuple[int, int]]:
    """Group and resident bytes of every process."""
    found = []
    for process in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = process.read_bytes().rpartition(b")")[2].split()
            found.append((int(fields[2]), int(fields[21]) * PAGE))
    return found


def _by_ps() -> list[tuple[int, int]]:
    lines = subprocess.run(["ps", "-A", "-o", "pgid=,rss="], capture_output=True, text=True, check=False).stdout
    pairs = (line.split() for line in lines.splitlines())
    return [(int(pair[0]), int(pair[1]) * 1024) for pair in pairs if len(pair) == 2]
