"""The checks in a process of their own: a plugin that ends it, hangs there or eats memory is a finding."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import wait
from typing import Any

from membench.conformance.checks import CHECKS, Check, Result
from membench.conformance.subject import Subject
from membench.errors import MembenchError, PluginError, UsageError, in_words
from membench.execute.isolated import Isolated, Talk
from membench.execute.limits import Limits
from membench.execute.process_group import memory_of
from membench.interface.options import label
from membench.printing import printable_lines

MEND = "let building, calling and training it return with little time and memory; raise an exception, and never exit"


class CutOff(Exception):
    """The process ended, or was stopped, before it was done; the text says how."""


def check_apart(
    find: Callable[[], Subject], limits: Limits, checks: Sequence[Check] = CHECKS
) -> tuple[str, str, list[Result]]:
    """The architecture that `find` finds, its config in a few words, and what became of the checks.

    The limits are those of a single check. One that is cut off is a finding, and those after it are not asked. What the
    plugin prints goes to standard error. Raises what `find` raises, and PluginError when that is cut off.
    """
    process = Isolated.start(functools.partial(_serve, find, [one.name for one in checks]), ["torch", __name__])
    subject: list[str] = []
    results: list[Result] = []
    try:
        for message in _hear(process, limits):
            match message:
                case {"kind": "refused", "text": text, "exit_code": code}:
                    raise UsageError(str(text)) if code == UsageError.exit_code else PluginError(str(text))
                case {"kind": "found", "name": name, "config": config}:
                    subject = [str(name), str(config)]
                case {"kind": "result", "result": result}:
                    results.append(Result(**result))
    except CutOff as error:
        if not subject:
            raise PluginError(f"the model could not be loaded: {error}") from None
        results += _cut_off(checks[len(results) :], str(error))
    finally:
        process.end()
        print(printable_lines(process.tail), end="", file=sys.stderr)
    name, config = subject
    return name, config, results


def _serve(find: Callable[[], Subject], names: Sequence[str], talk: Talk) -> None:
    """All that the process does."""
    try:
        subject = find()
    except BaseException as error:  # a plugin may even call sys.exit
        refusal = error if isinstance(error, MembenchError) else PluginError(f"the model failed: {in_words(error)}")
        talk.say(kind="refused", text=str(refusal), exit_code=refusal.exit_code)
        return
    talk.say(kind="found", name=subject.architecture.name, config=label(subject.config))
    for check in CHECKS:
        if check.name in names:
            talk.say(kind="result", result=asdict(check(subject)))


def _hear(process: Isolated, limits: Limits) -> Iterator[dict[str, Any]]:
    """Every message as it comes, until the last. Raises CutOff."""
    since = None  # when it began with what comes next
    while True:
        wait(process.sources(), limits.patience)
        process.drain()
        if process.connection.poll():
            with suppress(EOFError, OSError):
                message = _message(process.connection.recv_bytes())
                if message["kind"] == "done":
                    return
                yield message
                since = time.monotonic()
                continue
            raise CutOff(f"its process {process.end()}")
        if process.has_ended:
            raise CutOff(f"its process {process.end()}")
        memory = memory_of({process.pid}, limits.memory)[process.pid] if limits.memory else 0
        if reason := limits.exceeded(since, memory):
            raise CutOff(reason)


def _message(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or "kind" not in message:
        raise CutOff("its process sent an invalid message")
    return message


def _cut_off(checks: Sequence[Check], reason: str) -> list[Result]:
    """The first of them did not come to its end."""
    first, *others = checks
    finding = Result(first.name, first.expected, "failed", f"it did not come to its end: {reason}", first.why, MEND)
    never = f"'{first.name}' did not come to its end"
    return [finding, *(Result(one.name, one.expected, "not asked", never) for one in others)]
