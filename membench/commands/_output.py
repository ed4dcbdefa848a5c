"""What several verbs share: choosing plugins, and printing for people or for machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from membench.errors import UsageError
from membench.interface.options import Option, options_of
from membench.interface.registry import Registry, Selection

F = TypeVar("F", bound=Callable[..., Any])


def plugin_options(command: F) -> F:
    """--plugin and --block, for every verb that loads plugins."""
    command = click.option(
        "--block", multiple=True, metavar="NAME", help="Leave a plugin (or a whole distribution) out."
    )(command)
    return click.option(
        "--plugin",
        "files",
        multiple=True,
        type=click.Path(),
        metavar="FILE.py",
        help="Load a plugin that is not installed from its file.",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)


def load_registry(files: tuple[str, ...], block: tuple[str, ...]) -> Registry:
    """The plugins that were asked for. One that does not load stops nobody, but whoever named its file is told."""
    registry = Registry(Selection.from_environment(files, block))
    named = {Path(file).stem for file in files}
    for plugin in registry.plugins:
        if plugin.name in named and plugin.status == "failed":
            click.echo(f"membench: plugin '{plugin.name}' did not load: {plugin.reason}", err=True)
        elif plugin.name in named and not (plugin.architectures or plugin.tasks or plugin.bounds):
            click.echo(f"membench: plugin '{plugin.name}' provides nothing; it has no hook of membench", err=True)
    return registry


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console() -> Console:
    return Console(highlight=False)


def listing(title: str, *headers: str) -> Table:
    """A table in the look that all of ours share."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(header, no_wrap=number == 0, overflow="fold")
    return table


def option_rows(config: type) -> list[dict[str, Any]]:
    """A config's options as plain data."""
    return [
        {"name": one.name, "default": _default(one), "valid": one.valid(), "help": one.help}
        for one in options_of(config).values()
    ]


def _default(one: Option) -> Any:
    return "auto" if one.automatic else None if one.default is MISSING else one.default


def options_table(config: type, flag: str) -> Table:
    table = listing(
        f"Options, set with {flag} NAME=VALUE (lists: 7,10,13; ranges: 1:31:5)", "name", "default", "valid", "meaning"
    )
    for row in option_rows(config):
        default = "-" if row["default"] is None else str(row["default"])
        table.add_row(row["name"], default, row["valid"], row["help"])
    return table


def parse_seeds(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """`5` means the seeds 0 to 4; `3,7` and `10:14` name the seeds themselves."""
    try:
        if text.isdigit():
            seeds = list(range(int(text)))
        else:
            seeds = [seed for part in text.split(",") for seed in _seed_range(part)]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(seeds) > 10_000:
        raise UsageError(f"--seeds {text}: a number of seeds such as 5, or seeds such as 3,7 or 10:14, is needed")
    return tuple(dict.fromkeys(seeds))


def _seed_range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last or first) + 1)
