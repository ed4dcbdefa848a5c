"""What several verbs print, for people or for machines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from membench.errors import UsageError
from membench.interface.options import Option, options_of
from membench.printing import as_json, console

if TYPE_CHECKING:
    from membench.execute.run import Run
    from membench.plan.shard import Shard
    from membench.regress.compare import Comparisons
    from membench.results import Results

SHOWN_NOTES = 8  # on a screen; --json has all
ROUTINE = ("compiled",)  # notes that a record needs and nobody else


def print_json(value: Any) -> None:
    click.echo(as_json(value))


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
        table.add_row(*map(escape, (row["name"], default, row["valid"], row["help"])))
    return table


def show_results(results: Results, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    """What `run`, `sweep` and `tune` print; JSON may hold more."""
    from membench_leaderboard.data import rows_as_json
    from membench_leaderboard.frame import to_frame
    from membench_leaderboard.rows import summarise
    from membench_leaderboard.terminal import boards

    rows, ran = summarise(to_frame(results.records)), results.ran or 0
    found = len(results) - ran
    if as_json:
        shown = {"rows": rows_as_json(rows), "records": str(results.folder), "ran": ran, "found": found}
        shown |= {"quantized": rounded} if (rounded := results.quantized()) else {}
        print_json({**(more or {}), **shown, "failed": _failures(results), "notes": _notes(results)})
        return
    out = console()
    for board in boards(rows, rank=False, width=out.width):
        out.print(board)
    if rounded := results.quantized():
        out.print(_quantized_table(rounded))
    parts = {f"{record.task['name']}/{record.architecture['name']}" for record in results.records}
    folders = ", ".join(f"{results.folder}/{part}" for part in sorted(parts))
    out.print(f"{ran} trials run, {found} reused from {escape(folders)}", soft_wrap=True)
    for note in _notes(results)[:SHOWN_NOTES]:
        out.print(f"note: {note}", soft_wrap=True, markup=False)
    out.print(f"Next: membench leaderboard {results.folder}", style="dim", soft_wrap=True, markup=False)


def _quantized_table(rounded: Sequence[Mapping[str, Any]]) -> Table:
    """What rounding the weights leaves, beside what they hold as they were trained."""
    table = listing("\nRounded after training", "weights", "accuracy", "interval", "bits kept", "stored", "model")
    for row in rounded:
        low, high = row["low"], row["high"]
        interval = f"{low:.3f}-{high:.3f}" if low == low else "-"
        kept = "-" if row["kept"] is None else f"{100 * row['kept']:.1f} %"
        stored = f"{row['stored_bits']:,.0f}"
        table.add_row(row["weights"], f"{row['accuracy']:.4f}", interval, kept, stored, escape(row["model"]))
    return table


def _failures(results: Results) -> list[dict[str, Any]]:
    """Which trials failed, and why."""
    from membench.plan.trial import Point
    from membench.records.store import Store

    return [
        {
            "model": record.architecture["name"],
            "config": record.architecture["config"],
            "task": record.task["name"],
            "seed": record.seed,
            "error": record.error,
            "record": str(Store(Path(results.folder or "")).place(Point.of(record), record.seed)),
        }
        for record in results.failed
    ]


def _notes(results: Results) -> list[str]:
    """What a reader of the numbers should know, once for all trials of a model with a note of one kind."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in results.records:
        for note in record.trace.get("notes", ()):
            if note not in ROUTINE:
                where = f"{record.architecture['name']} on {record.task['name']}"
                found.setdefault((where, str(note).partition(":")[0]), []).append(str(note))
    return [
        f"{where}: {notes[0]}{f' ({len(notes)} trials)' if len(notes) > 1 else ''}"
        for (where, _), notes in found.items()
    ]


def announce(planned: Run, as_json: bool) -> None:
    """How much is to be done and how long it takes; the calibration behind that takes some seconds itself."""
    from membench.verbs.run import estimate_of

    total, pending = len(planned.trials), len(planned.pending)
    time_needed = estimate_of(planned)
    if as_json:
        print_json({"trials": total, "pending": pending, **asdict(time_needed)})
        return
    points = len({trial.point for trial in planned.pending})
    click.echo(f"{total} trials, {total - pending} done, {pending} to run at {points} points of the grid")
    if pending:
        workers = planned.execution.workers
        click.echo(f"{time_needed}, with {workers} worker process{'' if workers == 1 else 'es'}")


def announce_array(shard: Shard | None) -> None:
    """The line that has SLURM run every shard of this command, where one of them was asked for."""
    if shard is None:
        return
    words = [word for word in sys.argv[1:] if word not in ("--dry-run", "--json")]
    at = next((place for place, word in enumerate(words) if word.startswith("--shard")), len(words))
    rest = shlex.join(["membench", *words[:at], *words[at + (1 if "=" in "".join(words[at : at + 1]) else 2) :]])
    line = shlex.quote(f"{rest} --shard $SLURM_ARRAY_TASK_ID/{shard.count}")
    click.echo(f"all shards: sbatch --array=1-{shard.count} --wrap {line}", err=True)


def check_writable(*paths: Path | None) -> None:
    """UsageError now, and not after minutes of measuring, for a file whose folder is not there."""
    for path in paths:
        if path and not path.absolute().parent.is_dir():
            raise UsageError(f"cannot write '{path}': there is no folder '{path.parent}'")


def publish(
    comparisons: Comparisons,
    heading: str,
    notes: Sequence[str],
    *,
    markdown: Path | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Show the comparisons on standard output and write the files that were asked for."""
    from membench.records.files import write_named
    from membench.regress.formats import as_junit, as_markdown, as_plain, as_table, changed, summary

    if markdown:
        write_named(markdown, as_markdown(comparisons, heading, notes))
    if junit:
        write_named(junit, as_junit(comparisons, heading))
    if as_json:
        print_json(as_plain(comparisons, heading, notes))
        return
    out = console()
    out.print(as_table(comparisons, heading) if changed(comparisons) else escape(heading))
    for line in (*summary(comparisons), *notes):
        out.print(escape(line), soft_wrap=True)


@contextmanager
def baseline_untouched() -> Iterator[None]:
    """An interruption is told in other words than that of a run: records of a suite are not continued from."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("membench: interrupted; the baseline is unchanged", err=True)
        raise SystemExit(130) from None


def finish(comparisons: Comparisons, strict: bool) -> None:
    """Exit code 1 when capacity was lost; a warning where nothing can be said."""
    from membench.regress.formats import fail_if_lost

    warning = fail_if_lost(comparisons, strict)
    if warning:
        click.echo(f"membench: {warning}", err=True)
