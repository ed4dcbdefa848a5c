"""`membench ask`: what a measured model answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.markup import escape

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, print_json
from membench.printing import console
from membench.verbs.arguments import load_registry
from membench.verbs.ask import Answer, Oracle


@click.command()
@click.argument("path", type=click.Path(readable=False, path_type=Path))
@click.argument("words", nargs=-1)
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 10_000), help="Facts to ask about.")
@click.option("--wrong", is_flag=True, help="Only what is answered wrongly.")
@json_option
@plugin_options
def ask(
    path: Path,
    words: tuple[str, ...],
    count: int,
    wrong: bool,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Ask a measured model, and see what is right.

    PATH is a record whose weights were kept, or a folder in which the first such record is asked. WORDS are the tokens
    of one question, by name or by number; without them, some facts are asked.

    \b
    membench run --model mlp-transformer --task world --keep-weights
    membench ask results France capital
    membench ask results --wrong
    """
    oracle = Oracle.of(path, load_registry(files, block))
    answers = [oracle.ask(words)] if words else oracle.some(count, wrong=wrong)
    if as_json:
        print_json(oracle.as_json(answers))
        return
    _show(oracle, answers)


def _show(oracle: Oracle, answers: Sequence[Answer]) -> None:
    out, record = console(), oracle.record
    out.print(escape(f"{oracle.trial.describe()}, seed {record.seed}: {oracle.path}"), soft_wrap=True)
    table = listing("", "question", "answer", "probability", "right")
    for one in answers:
        right = "yes" if one.is_right else f"no: {one.right}" if one.right else "not among the facts"
        table.add_row(escape(", ".join(one.question)), escape(one.answer), f"{one.probability:.2f}", escape(right))
    if answers:
        out.print(table)
    bits, beyond = record.metrics.get("bits"), record.metrics.get("bits_beyond_last_token")
    words = [f"accuracy {record.metrics['accuracy']:.4f}"]
    words += [f"{bits:,.0f} bits"] if bits is not None else []
    words += [f"{beyond:,.0f} of them beyond the best guess by the last token"] if beyond is not None else []
    out.print("; ".join(words), soft_wrap=True)
