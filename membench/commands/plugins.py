"""`membench plugins`: who provides what, and what did not load."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, print_json
from membench.interface.registry import Plugin
from membench.printing import console
from membench.verbs.arguments import load_registry


@click.command()
@json_option
@plugin_options
def plugins(as_json: bool, files: tuple[str, ...], block: tuple[str, ...]) -> None:
    """List the plugins and what each provides.

    A plugin that did not load is listed with the reason. MEMBENCH_PLUGINS=a,b loads only those; --block
    skips one; MEMBENCH_STRICT=1 lets a plugin's error through, with its traceback.
    """
    found = load_registry(files, block).plugins
    if as_json:
        print_json([_as_json(plugin) for plugin in found])
        return
    table = listing("", "plugin", "from", "status", "provides")
    for plugin in found:
        detail = escape(plugin.reason) if plugin.reason else _provided(plugin)
        colour = {"loaded": "green", "failed": "red"}.get(plugin.status, "yellow")
        table.add_row(escape(plugin.name), escape(str(plugin.origin)), f"[{colour}]{plugin.status}[/{colour}]", detail)
    console().print(table)


def _provided(plugin: Plugin) -> str:
    parts: dict[str, tuple[Any, ...]] = {
        "model": plugin.architectures,
        "task": plugin.tasks,
        "bound": plugin.bounds,
        "tracker": plugin.trackers,
    }
    return "; ".join(
        f"{kind}{'s' if len(items) > 1 else ''} {', '.join(item.name for item in items)}"
        for kind, items in parts.items()
        if items
    )


def _as_json(plugin: Plugin) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.origin.version,
        "commit": plugin.origin.commit,
        "status": plugin.status,
        "reason": plugin.reason,
        "architectures": [item.name for item in plugin.architectures],
        "tasks": [item.name for item in plugin.tasks],
        "bounds": [item.name for item in plugin.bounds],
        "trackers": [item.name for item in plugin.trackers],
    }
