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


def memory_of(leaders: set[int], enough: int = 0) -> dict[int, int]:
    """Bytes of memory that each group holds, by its leader; groups that are not there hold none.

    What processes share counts once for each of them, unless that makes more than `enough`: then it is looked at
    more closely, which takes longer.
    """
    groups: dict[int, list[tuple[int, int]]] = {leader: [] for leader in leaders}
    for group, process, size in _linux() if sys.platform == "linux" else _by_ps():
        if group in groups:
            groups[group].append((process, size))
    held = {leader: sum(size for _, size in members) for leader, members in groups.items()}
    return {
        leader: sum(_own_part(process, size) for process, size in groups[leader]) if held[leader] > enough else total
        for leader, total in held.items()
    }


def _linux() -> list[tuple[int, int, int]]:
    """Group, id and resident bytes of every process."""
    found = []
    for process in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = process.read_bytes().rpartition(b")")[2].split()
            found.append((int(fields[2]), int(process.parent.name), int(fields[21]) * PAGE))
    return found


def _by_ps() -> list[tuple[int, int, int]]:
    lines = subprocess.run(["ps", "-A", "-o", "pgid=,pid=,rss="], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in lines.splitlines())
    return [(int(row[0]), int(row[1]), int(row[2]) * 1024) for row in rows if len(row) == 3]


def _own_part(process: int, resident: int) -> int:
    """Resident bytes, with what is shared divided among those that share it; on Linux only."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return resident
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), resident)
