"""Progress with the time that is left: a bar on a terminal, a line in a notebook, and a line now and then elsewhere."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from membench.execute.driver import Watcher
from membench.printing import printable_lines

if TYPE_CHECKING:
    from membench.plan.trial import Trial
    from membench.records.record import Record

NOTEBOOK_SECONDS = 0.2  # between two updates, each of which is a message to the browser
LOG_SECONDS = 10.0  # between two lines where they stay
SHOWN_LINES = 3  # of what a failed trial printed; its record has more


class Bar:
    """For a pipe or a log: a plain line now and then, so that a long run does not look like a dead one."""

    def __init__(self, label: str = "") -> None:
        self.label, self.words, self.fraction = label, "", 0.0
        self.started = self.shown = time.monotonic()

    def update(self, fraction: float, label: str | None = None, words: str = "") -> None:
        """The fraction that is done; what is shown before and after it."""
        self.fraction, self.words = fraction, words
        self.label = self.label if label is None else label
        self.show()

    def show(self) -> None:
        if time.monotonic() - self.shown >= LOG_SECONDS:
            self.shown = time.monotonic()
            self.say(f"membench: {self.line()}")

    def line(self) -> str:
        """Everything that there is to see, as plain text."""
        seconds = time.monotonic() - self.started
        left = f", at most {_duration(seconds / self.fraction - seconds)} left" if self.fraction > 0 else ""
        words = f", {self.words}" if self.words else ""
        return f"{self.label}, {self.fraction:.0%}, {_duration(seconds)}{left}{words}"

    def say(self, text: str) -> None:
        """A line that stays."""
        print(printable_lines(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class _SilentBar(Bar):
    def show(self) -> None:
        pass

    def say(self, text: str) -> None:
        pass


@contextmanager
def bar(label: str, show: bool = True) -> Iterator[Bar]:
    """The bar that suits where this runs; without `show` one that says nothing at all."""
    one = _bar(label) if show else _SilentBar(label)
    try:
        one.show()
        yield one
    finally:
        one.close()


def _bar(label: str) -> Bar:
    if _in_notebook():
        return _NotebookBar(label)
    return _TerminalBar(label) if sys.stderr.isatty() else Bar(label)


def _in_notebook() -> bool:
    """Whether output goes to a browser: IPython on a terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


class _TerminalBar(Bar):
    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        super().__init__(label)
        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.completed:.0%}"),
            TimeElapsedColumn(), TextColumn("at most"), TimeRemainingColumn(),
            TextColumn("{task.fields[words]}", style="dim", markup=False),
        )  # fmt: skip
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(*columns, console=self.console, transient=True)
        self.task = self.progress.add_task(label, total=1.0, words="")
        self.progress.start()

    def show(self) -> None:
        self.progress.update(self.task, completed=self.fraction, description=self.label, words=self.words)

    def say(self, text: str) -> None:
        self.console.print(printable_lines(text), markup=False, soft_wrap=True)

    def close(self) -> None:
        self.progress.stop()


class _NotebookBar(Bar):
    """A line that is replaced; rich would ask for a package of widgets here, and a browser has bars of its own."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.shown = 0.0
        display: Any = import_module("IPython.display").display  # no dependency of ours: who is in a notebook has it
        self.handle = display(self._content(), raw=True, display_id=True)

    def show(self) -> None:
        if time.monotonic() - self.shown >= NOTEBOOK_SECONDS:
            self.shown = time.monotonic()
            self.handle.update(self._content(), raw=True)

    def close(self) -> None:
        text = f"{self.label} in {_duration(time.monotonic() - self.started)}"
        self.handle.update({"text/plain": text, "text/html": html.escape(text)}, raw=True)

    def _content(self) -> dict[str, str]:
        text = self.line()
        shape = f'<progress value="{self.fraction:.4f}" max="1"></progress> '
        return {"text/plain": text, "text/html": shape + html.escape(text)}


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def watching(pending: int, show: bool = True, what: str = "trials") -> Iterator[Watcher]:
    """Of trials that run. A trial that fails leaves a line, wherever this runs."""
    with bar(f"0/{pending} {what}", show and pending > 0) as shown:
        done = failed = 0

        def finished(trial: Trial, record: Record) -> None:
            nonlocal done, failed
            done += 1
            failed += not record.complete
            label = f"{done}/{pending} {what}" + (f", {failed} failed" if failed else "")
            shown.update(shown.fraction, label, shown.words)
            if not record.complete:
                shown.say(f"failed: {trial.describe()}, seed {trial.seed}: {record.error}")
                for line in str(record.trace.get("output", "")).strip().splitlines()[-SHOWN_LINES:]:
                    shown.say(f"    it printed: {line[:200]}")

        shown.update(0.0, words="starting torch")
        yield Watcher(progress=lambda fraction, text: shown.update(fraction, words=text), finished=finished)


@contextmanager
def counting(total: int, what: str, show: bool = True) -> Iterator[Callable[[], None]]:
    """Of so many steps of one kind; what it yields is called after each of them."""
    with bar(f"0/{total} {what}", show and total > 0) as shown:
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            shown.update(done / total, f"{done}/{total} {what}")

        yield advance
