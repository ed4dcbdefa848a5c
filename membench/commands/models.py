"""`membench models`: the architectures that can be run."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, option_rows, options_table, print_json
from membench.interface.declarations import Architecture
from membench.interface.registry import Registry
from membench.printing import console
from membench.verbs.arguments import load_registry


@click.command()
@click.argument("name", required=False)
@json_option
@plugin_options
def models(name: str | None, as_json: bool, files: tuple[str, ...], block: tuple[str, ...]) -> None:
    """List the architectures, or show one with its options.

    \b
    membench models
    membench models aot
    """
    registry = load_registry(files, block)
    chosen = [registry.declared(name)] if name else list(registry.architectures.values())
    if as_json:
        print_json([_as_json(registry, one) for one in chosen])
    elif name:
        _show_one(registry, chosen[0])
    else:
        _show_all(registry, chosen)


def _as_json(registry: Registry, one: Architecture[Any]) -> dict[str, Any]:
    return {
        "name": one.name,
        "summary": one.summary,
        "reference": one.reference,
        "distribution": one.origin.distribution,
        "version": one.origin.version,
        "constructions": list(one.constructions),
        "kernel": one.kernel is not None,
        "missing": one.missing,
        "options": option_rows(one.config),
    }


def _show_all(registry: Registry, chosen: list[Architecture[Any]]) -> None:
    table = listing("", "model", "from", "summary")
    for one in chosen:
        table.add_row(one.name, *map(escape, (str(one.origin), _summary(one))))
    console().print(table)
    console().print("\nOptions of one: membench models NAME", style="dim")


def _summary(one: Architecture[Any]) -> str:
    return f"{one.summary}; {one.missing}" if one.missing else str(one.summary)


def _show_one(registry: Registry, one: Architecture[Any]) -> None:
    out = console()
    about = escape(f"{_summary(one)}\nFrom {one.origin}. {one.reference}\n")
    out.print(f"[bold]{one.name}[/bold]  {about}")
    out.print(options_table(one.config, "-M"))
    if one.constructions:
        out.print(
            f"\nConstructions (--protocol construct -P construction=NAME): {', '.join(one.constructions)}", markup=False
        )
