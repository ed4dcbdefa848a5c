"""`membench tasks`: what can be memorised."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, option_rows, options_table, print_json
from membench.interface.declarations import Task
from membench.interface.registry import Registry
from membench.printing import console
from membench.verbs.arguments import load_registry


@click.command()
@click.argument("name", required=False)
@json_option
@plugin_options
def tasks(name: str | None, as_json: bool, files: tuple[str, ...], block: tuple[str, ...]) -> None:
    """List the tasks, or show one with its options.

    \b
    membench tasks
    membench tasks bigram
    """
    registry = load_registry(files, block)
    chosen = [registry.task(name)] if name else list(registry.tasks.values())
    if as_json:
        print_json([_as_json(registry, one) for one in chosen])
        return
    out = console()
    if name:
        about = escape(f"version {chosen[0].version}\n{chosen[0].summary}\n")
        out.print(f"[bold]{chosen[0].name}[/bold]  {about}")
        out.print(options_table(chosen[0].config, "-T"))
        return
    table = listing("", "task", "version", "from", "summary")
    for one in chosen:
        table.add_row(one.name, *map(escape, (str(one.version), str(one.origin), str(one.summary))))
    out.print(table)
    out.print("\nOptions of one: membench tasks NAME", style="dim")


def _as_json(registry: Registry, one: Task[Any]) -> dict[str, Any]:
    return {
        "name": one.name,
        "version": one.version,
        "summary": one.summary,
        "distribution": one.origin.distribution,
        "options": option_rows(one.config),
    }
