"""Confinement: a process that runs a stranger's code tells nobody anything but through the pipe that it is given.

What a plugin sees while it is trained are the answers. If it could leave them in a file, in shared memory or with a
process that stays, its model could find them there when it is asked. On Linux such a process gets namespaces of its
own (users, mounts, System V shared memory, network, processes), in which every file system is read-only but for one in
memory that ends with it, no capabilities, and rules of Landlock, which say the same once more: neither alone is on
every machine. It may read whatever its user may read.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import process, resource_tracker
from pathlib import Path
from typing import Any, NoReturn

MEMORY = "/dev/shm"  # where the file system in memory of a process's own goes
HIDDEN = "/run"  # sockets of services that would listen
CACHES = ("TMPDIR", "MEMBENCH_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

# of <linux/sched.h>, <linux/mount.h>, <linux/prctl.h> and <linux/landlock.h>; the system calls have these numbers on
# every processor but old ones
_MOUNTS, _IPC, _USERS, _PROCESSES, _NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _PRIVATE = 1, 2, 4, 8, 1 << 18
_MOUNT_SETATTR, _HERE, _RECURSIVE = 442, -100, 0x8000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PARENT_DEATH_SIGNAL, _DROP_BOUNDING, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 24, 36, 38
_CAPABILITY_VERSION = 0x20080522
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_WRITE_FILE = 1 << 1
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # to write, remove or make a file of any kind
_LATER_CHANGES = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # by version: to move, to truncate, to control a device
_TCP, _ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3


def confine(folder: str = "") -> list[str]:
    """Confine this process, before it loads a stranger's code. Returns what this machine does not have of it.

    Temporary files go into memory of its own, or into `folder` where that cannot be had.
    """
    return _Confinement().enter(folder, processes=False)


def apart(work: Callable[[list[str]], None], folder: str) -> NoReturn:
    """Confine a child of this process, with a namespace of processes too, and end when all of that has ended.

    `work` is told what this machine does not have of that.
    """
    confinement = _Confinement()
    missing = confinement.leave(processes=True)
    with suppress(OSError):
        confinement.call("prctl", _SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            confinement.call("prctl", _PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            work(confinement.settle(missing, folder, processes=True))
            status = 0
        finally:
            os._exit(status)  # whatever threads a plugin has started
    _, status = os.waitpid(child, 0)
    _end_orphans()
    os._exit(os.waitstatus_to_exitcode(status) and 1)


def close_others(kept: int) -> None:
    """All that was open before, but for one pipe and the standard streams."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    vars(resource_tracker)["_resource_tracker"]._fd = None  # one of its own is started if need be


@functools.cache
def lacking() -> str:
    """What this machine does not have of it, in words; empty if nothing. A process of its own tries it."""
    done = subprocess.run([sys.executable, "-I", __file__], capture_output=True, text=True, check=False)
    try:
        return in_words(json.loads(done.stdout))
    except (ValueError, TypeError):
        return in_words(["a process that could try it"])


def in_words(missing: Iterable[str]) -> str:
    """Empty if nothing is missing."""
    return " and ".join(missing)


class _Confinement:
    def __init__(self) -> None:
        self.linux = sys.platform == "linux"
        self.libc = ctypes.CDLL(None, use_errno=True) if self.linux else None

    def enter(self, folder: str, processes: bool) -> list[str]:
        return self.settle(self.leave(processes), folder, processes)

    def call(self, name: str, *given: object) -> int:
        """A function of the C library. OSError when it fails."""
        try:
            result: int = getattr(self.libc, name)(*given)
        except AttributeError:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        if result == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def system_call(self, number: int, *given: object) -> int:
        return self.call("syscall", ctypes.c_long(number), *given)

    def leave(self, processes: bool) -> list[str]:
        """Leave the namespaces of everybody else; that of processes is for the children."""
        if not self.linux:
            return ["namespaces"]
        user, group = os.geteuid(), os.getegid()
        kinds = _USERS | _MOUNTS | _IPC | _NETWORK | (_PROCESSES if processes else 0)
        try:
            self.call("unshare", kinds)
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        except OSError as error:
            return [f"namespaces ({error.strerror})"]
        return []

    def settle(self, missing: list[str], folder: str, processes: bool) -> list[str]:
        """Change nothing, see nobody, and have no power to undo that."""
        scratch, missing = [folder] if folder else [], [*missing]
        if self.linux and not missing:
            try:
                self._mount(processes)
                scratch = [MEMORY]
            except OSError as error:
                missing.append(f"namespaces of mounts ({error.strerror})")
        _use(scratch[0] if scratch else "")
        with suppress(OSError):  # else a signal to its group would reach the one that started it
            os.setsid()
        if self.linux:
            self._drop_powers()
        try:
            self._restrict(scratch)
        except OSError as error:
            missing.append(f"Landlock ({error.strerror})")
        return missing

    def _mount(self, processes: bool) -> None:
        """Everything read-only, but for memory of its own; what listens elsewhere is out of sight."""
        attributes = (ctypes.c_uint64 * 4)(_READ_ONLY | _NO_SUID, 0, _PRIVATE, 0)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        self.system_call(_MOUNT_SETATTR, _HERE, b"/", _RECURSIVE, ctypes.byref(attributes), size)
        sockets = _config().get("tempdir")  # of the server that this process was forked from
        for hidden in (HIDDEN, sockets):
            if hidden and os.path.isdir(hidden):
                self._mount_one("tmpfs", hidden, _READ_ONLY)
        self._mount_one("tmpfs", MEMORY, 0)
        if processes:
            with suppress(OSError):  # in some containers: then the others are seen, and out of reach all the same
                self._mount_one("proc", "/proc", _READ_ONLY | _NO_PROGRAMS)

    def _mount_one(self, kind: str, place: str, flags: int) -> None:
        kind_, flags_ = kind.encode(), ctypes.c_ulong(flags | _NO_SUID | _NO_DEVICES)
        self.call("mount", kind_, os.fsencode(place), kind_, flags_, None)

    def _drop_powers(self) -> None:
        """All capabilities for good, and the ring of keys that is shared with whoever logged in."""
        with suppress(OSError):
            self.call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        for capability in range(64):
            with suppress(OSError):
                self.call("prctl", _DROP_BOUNDING, capability, 0, 0, 0)
        with suppress(OSError, KeyError):
            self.system_call(_KEYCTL[platform.machine()], 1, None)
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
        with suppress(OSError):
            self.call("capset", ctypes.byref(header), ctypes.byref(none))

    def _restrict(self, scratch: Iterable[str]) -> None:
        """By Landlock: no change outside of `scratch`, and no TCP, abstract sockets, signals or looks at others."""
        if not self.linux:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        version = self.system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
        changes = _CHANGES | sum(bit for since, bit in _LATER_CHANGES.items() if version >= since)
        rules = (ctypes.c_uint64 * 3)(changes, _TCP, _ABSTRACT_SOCKETS_AND_SIGNALS)
        known = ctypes.c_size_t(8 if version < 4 else 16 if version < 6 else 24)
        ruleset = self.system_call(_CREATE_RULESET, ctypes.byref(rules), known, 0)
        try:
            for place, allowed in (*((one, changes) for one in scratch), (os.devnull, _WRITE_FILE)):
                self._allow(ruleset, place, allowed)
            self.system_call(_RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)

    def _allow(self, ruleset: int, place: str, allowed: int) -> None:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = ctypes.create_string_buffer(allowed.to_bytes(8, sys.byteorder) + opened.to_bytes(4, sys.byteorder))
            self.system_call(_ADD_RULE, ruleset, 1, rule, 0)
        finally:
            os.close(opened)


def _use(scratch: str) -> None:
    """For temporary files and what is compiled; and for the sockets of whatever processes this one starts."""
    _config().pop("tempdir", None)
    tempfile.tempdir = None
    if scratch:
        os.environ.update(dict.fromkeys(CACHES, scratch))


def _config() -> dict[str, Any]:
    found: dict[str, Any] = vars(process.current_process())["_config"]
    return found


def _end_orphans() -> None:
    """What a plugin has left running, where there is no namespace of processes: it has come to this one."""
    with suppress(OSError):  # not every system has that list
        while children := Path("/proc/thread-self/children").read_text("ascii").split():
            for child in map(int, children):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


if __name__ == "__main__":
    print(json.dumps(confine()))
