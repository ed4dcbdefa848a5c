"""What `regress` and `compare` share: their options, their output, and their exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.markup import escape

from membench.commands.common import console, json_option, print_json
from membench.errors import UsageError
from membench.records.files import write_atomically
from membench.regress.compare import LOST, NOT_COMPARABLE, TOO_FEW, CapacityLost, Comparisons
from membench.regress.report import as_junit, as_markdown, as_plain, as_table, changed, sentence, summary

F = TypeVar("F", bound=Callable[..., Any])


def output_options(command: F) -> F:
    """--strict, --markdown, --junit and --json."""
    for decorate in reversed(
        (
            click.option("--strict", is_flag=True, help="Fail too where nothing can be said."),
            click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                         help="Also write Markdown, for a pull request."),
            click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                         help="Also write JUnit XML."),
            json_option,
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


def check_writable(*paths: Path | None) -> None:
    """UsageError now, and not after minutes of measuring, for a file whose folder is not there."""
    for path in paths:
        if path and not path.absolute().parent.is_dir():
            raise UsageError(f"cannot write '{path}': there is no folder '{path.parent}'")


def publish(
    found: Comparisons, heading: str, notes: Sequence[str], *, markdown: Path | None, junit: Path | None, as_json: bool
) -> None:
    """Show the comparisons on standard output and write the files that were asked for."""
    if markdown:
        write_atomically(markdown, as_markdown(found, heading, notes))
    if junit:
        write_atomically(junit, as_junit(found, heading))
    if as_json:
        print_json(as_plain(found, heading, notes))
        return
    out = console()
    out.print(as_table(found, heading) if changed(found) else escape(heading))
    for line in (*summary(found), *notes):
        out.print(escape(line), soft_wrap=True)


def finish(found: Comparisons, strict: bool) -> None:
    """Exit code 1 when capacity was lost, or with --strict when nothing could be said of something."""
    lost = found.of(LOST)
    unsaid = found.of(NOT_COMPARABLE, TOO_FEW)
    if lost:
        raise CapacityLost("\n".join(f"capacity was lost: {sentence(row)}" for row in lost))
    if unsaid and strict:
        raise CapacityLost(f"--strict: nothing can be said of {len(unsaid)} of {len(found.rows)} comparisons")
    if unsaid:
        words = f"warning: nothing can be said of {len(unsaid)} of {len(found.rows)} comparisons"
        click.echo(f"membench: {words}; --strict makes this a failure", err=True)
