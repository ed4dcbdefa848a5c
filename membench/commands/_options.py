"""Options that several verbs share, each group of them handed over as what it describes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from membench.engine.execution import DEVICES, SWITCH, Execution, parse_memory
from membench.engine.protocols.protocol import PROTOCOLS
from membench.errors import UsageError
from membench.execute.executor import EXECUTORS
from membench.plan.request import Request
from membench.plan.shard import Shard
from membench.verbs.arguments import MAX_SEEDS

F = TypeVar("F", bound=Callable[..., Any])


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, shown by --help in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def parse_seeds(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """`5` means the seeds 0 to 4; `3,7` and `10:14` name the seeds themselves."""
    if text is None:
        return None
    try:
        if text.isdigit():
            seeds = list(range(int(text)))
        else:
            seeds = [seed for part in text.split(",") for seed in _seed_range(part)]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(seeds) > MAX_SEEDS:
        raise UsageError(f"--seeds {text}: give a number of seeds such as 5, or seeds such as 3,7 or 10:14")
    return tuple(dict.fromkeys(seeds))


def _seed_range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last or first) + 1)


def _memory(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_memory(text)


def names(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def _shard(context: click.Context, parameter: click.Parameter, text: str | None) -> Shard | None:
    return None if text is None else Shard.parse(text)


shard_option = click.option("--shard", callback=_shard, metavar="3/100",
                            help="Only this part of the grid, for one of many machines.")  # fmt: skip

json_option = click.option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")

out_option = click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
                          help="Folder for the records.")  # fmt: skip

# --plugin and --block, for every verb that loads plugins
plugin_options = _all(
    click.option("--plugin", "files", multiple=True, type=click.Path(readable=False), metavar="FILE.py",
                 help="Load a plugin from a file, without installing it."),
    click.option("--block", multiple=True, metavar="NAME", help="Skip a plugin, or all plugins of a distribution."),
)  # fmt: skip


def _request_options(model: str, task: str, option: str) -> Callable[[F], F]:
    """With the help for --model, --task and -M; the other options are the same for every verb."""
    return _all(
        click.option("--model", "models", multiple=True, required=True, metavar="NAME", help=model),
        click.option("--task", "tasks", multiple=True, required=True, metavar="NAME", help=task),
        click.option("-M", "model_options", multiple=True, metavar="NAME=VALUE", help=option),
        click.option("-T", "task_options", multiple=True, metavar="NAME=VALUE", help="Task option, same syntax as -M."),
        click.option("-P", "protocol_options", multiple=True, metavar="NAME=VALUE",
                     help="Protocol option, same syntax as -M."),
        click.option("--protocol", default="converged", show_default=True, metavar="NAME",
                     help=f"How weights are found: {', '.join(PROTOCOLS)}."),
        click.option("--seeds", default="5", show_default=True, callback=parse_seeds,
                     help="How many seeds, or which ones (3,7 or 10:14)."),
    )  # fmt: skip


_grid_options = _request_options(
    "Architecture: comma-separated names, or 'all'.",
    "Task: comma-separated names, or 'all'.",
    "Architecture option: d=10, d=7,10,13 or H=1:31:5.",
)
_point_options = _request_options(
    "Architecture, a single one.", "Task, a single one.", "Architecture option, a single value: d=10."
)

_execution_options = _all(
    click.option("--device", default="cpu", show_default=True, metavar="|".join(DEVICES), help="Where to compute."),
    click.option("--kernel", type=click.Choice(SWITCH), default="auto", show_default=True,
                 help="Fused training, for architectures that have it."),
    click.option("--compile", "compiling", type=click.Choice(SWITCH), default="auto", show_default=True,
                 help="torch.compile, for training without a kernel; auto: only for runs that take minutes."),
    click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; by default one per core."),
    click.option("--executor", type=click.Choice(EXECUTORS), default="local", show_default=True,
                 help="local: worker processes; inline: this process (for debugging); ray: a Ray cluster."),
    click.option("--address", metavar="HOST:PORT|auto",
                 help="Ray cluster to join; by default RAY_ADDRESS, or one is started on this machine."),
    click.option("--cpus", type=float, help="CPUs that Ray sets aside for each group of seeds; by default 1."),
    click.option("--gpus", type=float, help="GPUs likewise; 0.25 lets four groups share one."),
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="Stop a trial that takes longer; it counts as failed."),
    click.option("--memory", callback=_memory, metavar="SIZE",
                 help="Stop a worker process that holds more, such as 2G; its trials count as failed."),
)  # fmt: skip


def request_options(command: F) -> F:
    """--model, --task, -M, -T, -P, --protocol and --seeds, handed over as one `request`."""
    return _grid_options(_with_request(command))


def point_options(command: F) -> F:
    """The same, for a verb that measures one model on one task."""
    return _point_options(_with_request(command))


def _with_request(command: F) -> F:
    @functools.wraps(command)
    def wrapped(*arguments: Any, **given: Any) -> Any:
        own = {field.name: given.pop(field.name) for field in fields(Request) if field.name in given}
        return command(*arguments, request=Request(**own), **given)

    return wrapped  # type: ignore[return-value]


def execution_options(command: F) -> F:
    """--device, --kernel, --compile, --jobs, --executor, limits and what Ray needs, handed over as one `execution`."""
    names = ("device", "kernel", "compiling", "jobs", "executor", "timeout", "memory", "address", "cpus", "gpus")

    @_execution_options
    @functools.wraps(command)
    def wrapped(*arguments: Any, **given: Any) -> Any:
        execution = Execution(**{name: given.pop(name) for name in names})
        return command(*arguments, execution=execution, **given)

    return wrapped  # type: ignore[return-value]


def track_option(command: F) -> F:
    """--track, for a verb that has `execution`, of which it becomes a part."""

    @click.option(
        "--track",
        multiple=True,
        metavar="NAME",
        callback=names,
        help="Also tell an experiment tracker: trackio, wandb, mlflow, or any that a plugin provides.",
    )
    @functools.wraps(command)
    def wrapped(*arguments: Any, execution: Execution, track: tuple[str, ...], **more: Any) -> Any:
        return command(*arguments, execution=replace(execution, track=track), **more)

    return wrapped  # type: ignore[return-value]


# of the verbs that measure a suite
suite_options = _all(
    click.option("--suite", "suite_name", default="smoke", show_default=True, metavar="NAME|FILE.toml",
                 help="What to measure."),
    click.option("--baseline", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                 help="The baseline; by default baselines/SUITE.json."),
    click.option("--model", "models", multiple=True, metavar="NAME", callback=names,
                 help="Only these architectures of the suite (comma-separated)."),
    click.option("--seeds", callback=parse_seeds, help="How many seeds, or which, instead of the suite's."),
    click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
                 help="Keep the records in this folder."),
    execution_options,
    plugin_options,
)  # fmt: skip

# of the verbs that compare
comparison_options = _all(
    click.option("--strict", is_flag=True, help="Also fail where no comparison is possible."),
    click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                 help="Also write a Markdown report, for a pull request."),
    click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                 help="Also write a JUnit XML report."),
    json_option,
)  # fmt: skip
