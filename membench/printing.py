"""Text of records and plugins on its way to a terminal or a file: shown, and never acted on."""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_KEPT = "\n\t"
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")  # what JSON leaves as it is, and a terminal may act on
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes a cell for that begins with it


def printable(text: object) -> str:
    """The text without anything that a terminal would act on, such as a change of colour or of the title."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text))


def printable_lines(text: object) -> str:
    """The same for text of several lines."""
    return "".join(letter if letter.isprintable() or letter in _KEPT else "\ufffd" for letter in str(text))


class Harmless(io.TextIOBase):
    """A stream for code of strangers: what it writes is printed elsewhere, and a terminal does not act on it."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def write(self, text: str) -> int:
        self._to.write(printable_lines(text))
        return len(text)

    def flush(self) -> None:
        self._to.flush()

    def fileno(self) -> int:
        return self._to.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._to.encoding


class _Shared(Harmless):
    """The same for the threads in which a plugin speaks; the others write to the stream whose place it takes."""

    def __init__(self, to: TextIO, others: TextIO) -> None:
        super().__init__(to)
        self._others = others

    def write(self, text: str) -> int:
        return super().write(text) if threading.get_ident() in _speaking else self._others.write(text)


class _Caught:
    """What native code, or a write to a descriptor, would put past Python's own streams.

    Descriptors are everybody's, so that it is only caught where no other thread could be writing to one.
    """

    def __init__(self, *streams: TextIO) -> None:
        self._streams, self._saved = streams, dict[int, int]()
        if threading.active_count() > 1:
            return
        self._flush()
        with suppress(OSError), tempfile.TemporaryFile() as file:
            for number in (1, 2):
                with suppress(OSError):  # it is closed
                    self._saved[number] = os.dup(number)
                    os.dup2(file.fileno(), number)
            self._file = os.dup(file.fileno())

    def end(self) -> str:
        """What was written meanwhile."""
        if not self._saved:
            return ""
        self._flush()
        for number, saved in self._saved.items():
            os.dup2(saved, number)
            os.close(saved)
        with open(self._file, encoding="utf-8", errors="replace") as file:
            file.seek(0)
            return file.read(_MOST)

    def _flush(self) -> None:
        for stream in self._streams:
            with suppress(OSError, ValueError):
                stream.flush()
        with suppress(OSError, AttributeError, TypeError):  # the C library has a buffer of its own
            ctypes.CDLL(None).fflush(None)


_MOST = 1 << 20  # letters of that which are shown
_caught: list[_Caught] = []
_speaking: Counter[int] = Counter()  # how often each thread has entered
_replaced: list[TextIO] = []  # sys.stdout and sys.stderr as they were before the first thread entered
_lock = threading.Lock()  # both streams are everybody's


@contextmanager
def plugin_speaks() -> Iterator[None]:
    """What this thread prints goes to standard error, made harmless: not into somebody's --json."""
    thread = threading.get_ident()
    with _lock:
        if not _speaking:
            _replaced[:] = out, err = sys.stdout, sys.stderr
            _caught.append(_Caught(out, err))
            sys.stdout, sys.stderr = _Shared(err, out), _Shared(err, err)
        _speaking[thread] += 1
    try:
        yield
    finally:
        with _lock:
            _speaking[thread] -= 1
            if not _speaking[thread]:
                del _speaking[thread]
            if not _speaking:
                sys.stdout, sys.stderr = _replaced
                if text := _caught.pop().end():
                    sys.stderr.write(printable_lines(text))


def console(**options: Any) -> Console:
    """A console that prints control characters of any text as what they are."""
    from rich.console import Console

    class Printable(Console):
        def render_str(self, text: str, **more: Any) -> Any:
            return super().render_str(printable_lines(text), **more)

    return Printable(highlight=False, **options)


def as_json(value: Any) -> str:
    """Machine-readable, and still harmless to a terminal."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, indent=2, ensure_ascii=False))


def cell(value: Any) -> Any:
    """A value of a CSV file: a text never is a formula, which a spreadsheet would run."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if value.startswith(_FORMULA) else text
