"""A process of its own for what plugins do, so that one that dies or hangs there takes nobody along."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from membench.errors import in_words
from membench.execute.job import KEPT_OUTPUT
from membench.execute.process_group import end_with, kill
from membench.threads import ONE_THREAD

JOIN_SECONDS = 5.0  # for a process that was killed; more only helps one that the system itself cannot end
STARTS = 5  # of a process, while whoever forks it is being killed
GRACE = 10.0  # seconds between the last word of a process and its end, if nobody ends it


def start_server(context: Any, preload: list[str]) -> None:
    """Start the server that workers are forked from, deaf to Ctrl-C: that is for us, and we end the workers."""
    context.set_forkserver_preload(preload)
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may change what a signal does; the server starts when it is needed
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with environment(ONE_THREAD), _quiet_tracker():
            forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Python's resource tracker, if it is started here, removes what ended workers leave, and does not warn of it."""
    sys.warnoptions.append(quiet := "ignore:resource_tracker:UserWarning")
    try:
        yield
    finally:
        sys.warnoptions.remove(quiet)


@contextmanager
def environment(defaults: dict[str, str]) -> Iterator[None]:
    """For what is started here; a program that merely uses membench keeps its own."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


@contextmanager
def _main_hidden() -> Iterator[None]:
    """A new process would run the script of this one again; a worker needs nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass(eq=False)
class Isolated:
    """A process, and the three pipes that connect it with us."""

    process: BaseProcess
    connection: Connection
    output: Connection
    lifeline: Connection  # nothing is sent through it: that it is open says that we are here
    printed: bytes = b""

    @classmethod
    def start(cls, work: Callable[[Talk], None], preload: list[str]) -> Isolated:
        """Do this work in a process forked from a server that has imported `preload`, and is started if need be.

        Once more if somebody kills the server just now: Python starts another when that one has ended.
        """
        for _ in range(STARTS):
            try:
                return cls._start(work, preload)
            except (OSError, EOFError) as error:
                reason = error
                time.sleep(0.2)
        raise OSError(None, f"no worker process could be started, {STARTS} times in a row ({in_words(reason)})")

    @classmethod
    def _start(cls, work: Callable[[Talk], None], preload: list[str]) -> Isolated:
        context = multiprocessing.get_context("forkserver")
        start_server(context, preload)
        connection, output, (theirs, lifeline) = (context.Pipe(duplex=False) for _ in range(3))
        given = connection[1], output[1], theirs
        process = context.Process(target=_carry_out, args=(work, *given), daemon=True)
        try:
            with _main_hidden(), environment(ONE_THREAD):  # the server may have to be started first
                process.start()
        except BaseException:  # it may run all the same; then it ends now
            for pipe in (connection[0], output[0], lifeline):
                pipe.close()
            raise
        finally:
            for pipe in given:
                pipe.close()
        return cls(process, connection[0], output[0], lifeline)

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    @property
    def tail(self) -> str:
        """The end of what it printed."""
        return self.printed.decode(errors="replace")[-KEPT_OUTPUT:]

    @property
    def has_ended(self) -> bool:
        return self.process.exitcode is not None

    def sources(self) -> list[Any]:
        """What to wait for: each is ready when there is something to hear, or when the process has ended."""
        return [self.connection, self.process.sentinel, *([] if self.output.closed else [self.output])]

    def drain(self) -> None:
        """Take what was printed, so that printing never waits for us for long."""
        while not self.output.closed and self.output.poll():
            content = os.read(self.output.fileno(), 1 << 16)
            self.printed = (self.printed + content)[-4 * KEPT_OUTPUT :]  # a letter has at most four bytes
            if not content:
                self.output.close()
            if len(content) < 1 << 16:
                return

    def end(self) -> str:
        """With all that it started. How it ended, in words; by us, if it had not ended before."""
        before = self.process.exitcode
        kill(self.pid)
        self.process.kill()
        self.process.join(JOIN_SECONDS)
        self.drain()
        for pipe in (self.connection, self.output, self.lifeline):
            pipe.close()
        code = self.process.exitcode if before is None else before
        return f"was killed by signal {-code}" if code and code < 0 else f"ended with code {code}"


class Talk:
    """How the process speaks to us: in JSON, so that nothing a plugin does can reach us but text."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.last = connection, 0.0

    def say(self, **message: Any) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # a plugin may have closed it
                stream.flush()
        self.send(json.dumps(message).encode())

    def send(self, content: bytes) -> None:
        try:
            self.connection.send_bytes(content)
        except OSError:
            os._exit(1)  # there is nobody to work for, or a plugin has closed what we talk through

    def progress(self, fraction: float, text: str) -> None:
        if time.monotonic() - self.last > 0.1:
            self.last = time.monotonic()
            self.say(kind="progress", fraction=fraction, text=text)


def _carry_out(work: Callable[[Talk], None], connection: Connection, output: Connection, lifeline: Connection) -> None:
    """Entry point of the process.

    What is printed goes to `output`; when `lifeline` closes, because the parent has gone, this process ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    end_with(lifeline)
    for number in (1, 2):
        os.dup2(output.fileno(), number)
    # a line at a time, so that nothing is lost when the process dies
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable()  # so that a crash in native code says where it was
    talk = Talk(connection)
    talk.say(kind="started")
    work(talk)
    talk.say(kind="done")
    time.sleep(GRACE)  # the parent ends us here, with all that a plugin has left behind
    os._exit(0)  # without waiting for anybody's threads
