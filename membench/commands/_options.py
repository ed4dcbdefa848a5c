"""What every verb that runs trials shares: its options, the progress bar, and the way from trials to records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from membench.commands.common import parse_seeds
from membench.engine.execution import DEVICES, Execution
from membench.execute.driver import Watcher, execute
from membench.interface.registry import Registry
from membench.plan.request import Request
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store

F = TypeVar("F", bound=Callable[..., Any])


def request_options(command: F) -> F:
    """--model, --task, -M, -T, -P, --protocol and --seeds, handed over as one `request`."""

    @click.option(
        "--model",
        "models",
        multiple=True,
        required=True,
        metavar="NAME",
        help="Architecture; several with commas, or all.",
    )
    @click.option(
        "--task", "tasks", multiple=True, required=True, metavar="NAME", help="Task; several with commas, or all."
    )
    @click.option(
        "-M",
        "model_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Architecture option: d=10, d=7,10,13 or H=1:31:5.",
    )
    @click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option, in the same way.")
    @click.option(
        "-P", "protocol_options", multiple=True, metavar="NAME=VALUE", help="Protocol option, in the same way."
    )
    @click.option(
        "--protocol",
        default="converged",
        show_default=True,
        metavar="NAME",
        help="How weights are found: converged, dana2024, quick or construct.",
    )
    @click.option(
        "--seeds", default="5", show_default=True, callback=parse_seeds, help="How many, or which (3,7 or 10:14)."
    )
    @functools.wraps(command)
    def wrapped(*arguments: Any, **given: Any) -> Any:
        own = {field.name: given.pop(field.name) for field in fields(Request) if field.name in given}
        return command(*arguments, request=Request(**own), **given)

    return wrapped  # type: ignore[return-value]


def execution_options(command: F) -> F:
    """--device, --kernel, --compile and --jobs, handed over as one `execution`."""

    @click.option("--device", default="cpu", show_default=True, metavar="|".join(DEVICES), help="Where to compute.")
    @click.option(
        "--kernel",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="Fused training, for architectures that have it.",
    )
    @click.option(
        "--compile",
        "compiling",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="torch.compile, for training without a kernel; auto: when it takes minutes.",
    )
    @click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; one for each core unless said.")
    @functools.wraps(command)
    def wrapped(*arguments: Any, device: str, kernel: str, compiling: str, jobs: int | None, **more: Any) -> Any:
        return command(*arguments, execution=Execution(device, kernel, compiling, jobs=jobs), **more)

    return wrapped  # type: ignore[return-value]


def out_option(command: F) -> F:
    return click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
                        help="Folder for the records.")(command)  # fmt: skip


def carry_out(
    trials: Sequence[Trial], store: Store, registry: Registry, execution: Execution, pending: Sequence[Trial]
) -> list[Record]:
    """Run those that are pending, behind a progress bar, and give the records of all, in their order."""
    with watching(len(pending)) as watcher:
        execute(pending, store, registry, execution, watcher)
    return [read(store, trial) for trial in trials]


def read(store: Store, trial: Trial) -> Record:
    return Record.from_json(store.path(trial).read_text("utf-8"))


@contextmanager
def watching(pending: int) -> Iterator[Watcher]:
    """A progress bar on a terminal; elsewhere a line for each trial that fails and nothing more."""
    err = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0%}"), TimeElapsedColumn(),
        TextColumn("at most"), TimeRemainingColumn(), TextColumn("[dim]{task.fields[words]}"),
    )  # fmt: skip
    with Progress(*columns, console=err, disable=not (pending and err.is_terminal), transient=True) as bar:
        task = bar.add_task(f"0/{pending} trials", total=1.0, words="starting torch")
        yield Watcher(
            progress=lambda fraction, text: bar.update(task, completed=fraction, words=text),
            finished=_counter(lambda done: bar.update(task, description=f"{done}/{pending} trials"), err),
        )


def _counter(show: Callable[[int], Any], err: Console) -> Callable[[Trial, Record], None]:
    done = 0

    def finished(trial: Trial, record: Record) -> None:
        nonlocal done
        done += 1
        show(done)
        if not record.complete:
            err.print(f"failed: {trial.describe()}, seed {trial.seed}: {record.error}", markup=False, soft_wrap=True)

    return finished
