"""`membench check`: what is expected of an architecture, and what to fix."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, print_json
from membench.printing import console
from membench.verbs.check import MEMORY, TIMEOUT, Conformance
from membench.verbs.check import check as check_model

if TYPE_CHECKING:
    from membench.conformance.checks import Result

COLOURS = {"passed": "green", "advice": "yellow", "failed": "red", "not asked": "dim"}


@click.command()
@click.argument("model")
@click.option("-M", "options", multiple=True, metavar="NAME=VALUE", help="Architecture option, a single value: d=10.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=TIMEOUT, show_default=True,
              metavar="SECONDS", help="Stop a check that takes longer; it counts as failed.")  # fmt: skip
@click.option("--memory", default=MEMORY, show_default=True, metavar="SIZE",
              help="Stop a check that holds more memory, such as 2G; it counts as failed.")  # fmt: skip
@json_option
@plugin_options
def check(
    model: str,
    options: tuple[str, ...],
    timeout: float,
    memory: str,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Test an architecture against all that membench expects of it.

    MODEL is a name, or a class or function in a file. Each finding says what was seen, why it matters and how to
    mend it. Exit code 1 if there is one; advice alone is exit code 0. The checks run in a process of their own, so that
    a model that kills it, hangs or takes all memory is a finding too.

    \b
    membench check aot
    membench check ./my_layer.py:MyModel -M d=8
    """
    conformance = check_model(model, M=options, timeout=timeout, memory=memory, plugins=files, block=block)
    if as_json:
        print_json({**asdict(conformance), "passed": not conformance.failed})
    else:
        _show(conformance)
    if conformance.failed:
        raise SystemExit(1)


def _show(conformance: Conformance) -> None:
    out = console()
    table = listing(escape(f"{conformance.architecture} {conformance.config}".strip()), "check", "outcome", "expected")
    for one in conformance.results:
        colour = COLOURS[one.outcome]
        table.add_row(one.check, f"[{colour}]{one.outcome}[/{colour}]", escape(one.expected))
    out.print(table)
    for one in (*conformance.failed, *conformance.advice):
        _explain(one)
    passed = sum(one.outcome == "passed" for one in conformance.results)
    failed, advice = len(conformance.failed), len(conformance.advice)
    out.print(f"\n{passed} passed, {failed} failed, {advice} with advice")


def _explain(one: Result) -> None:
    out = console()
    out.print(f"\n[bold]{one.check}[/bold]: {escape(one.what)}", soft_wrap=True)
    out.print(f"  why it matters: {escape(one.why)}", soft_wrap=True)
    out.print(f"  how to fix it: {escape(one.mend)}", soft_wrap=True)
