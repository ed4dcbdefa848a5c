"""`membench verify`: rebuild the models of a submission from their weights, and see whether its records are true."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from membench.commands._options import json_option, plugin_options
from membench.commands._output import listing, print_json
from membench.errors import NOT_ALL_VERIFIED, UsageError
from membench.interface.options import label_of
from membench.interface.registry import Selection
from membench.printing import console
from membench.records.record import Record
from membench.verbs.arguments import check_plugin_files
from membench.verbs.verify import Verification
from membench.verbs.verify import verify as check
from membench.verify.verdict import FAILED, TIMEOUT, UNCHECKED, VERIFIED, Verdict

if TYPE_CHECKING:
    from membench.verify.retrain import Repeat

COLOURS = {VERIFIED: "green", FAILED: "red", UNCHECKED: "yellow"}


@click.command()
@click.argument("folder", type=click.Path(readable=False, path_type=Path))
@click.option("--retrain", is_flag=True, help="Also retrain each point, on seeds that the submitter did not choose.")
@click.option("--points", type=click.IntRange(min=1), metavar="N",
              help="Retrain only so many points, which the salt draws (all by default).")  # fmt: skip
@click.option("--salt", metavar="TEXT", help="Salt that makes the seeds unpredictable (random by default).")
@click.option("--sign", "key", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="KEY",
              help="Sign the marks with this SSH key, so that others see who verified.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), help="Records to check in parallel; by default one per core.")
@click.option("--timeout", type=click.FloatRange(min=1), default=TIMEOUT, show_default=True, metavar="SECONDS",
              help="Time limit per record.")  # fmt: skip
@json_option
@plugin_options
def verify(
    folder: Path,
    retrain: bool,
    points: int | None,
    salt: str | None,
    key: Path | None,
    jobs: int | None,
    timeout: float,
    as_json: bool,
    files: tuple[str, ...],
    block: tuple[str, ...],
) -> None:
    """Check records against their weights.

    Each model is rebuilt in separate processes, twice, from seeds that nobody knows, and queried on
    every fact again. Records that pass are listed in FOLDER/verified.json by content hash, with the
    numbers that were measured; editing one voids its mark.

    \b
    membench verify submission/
    membench verify submission/ --retrain --points 1
    membench verify submission/ --sign ~/.ssh/id_ed25519
    """
    if points is not None and not retrain:
        raise UsageError(f"--points {points} says how many points are retrained; add --retrain")
    check_plugin_files(files)
    selection = Selection.from_environment(files, block)
    verification = check(
        folder, selection, retrain=retrain, points=points, salt=salt, key=key, jobs=jobs, timeout=timeout
    )
    _show(verification, as_json)
    sys.stdout.flush()
    if FAILED in verification.outcomes:
        sys.exit(1)
    if UNCHECKED in verification.outcomes:
        sys.exit(NOT_ALL_VERIFIED)


def _show(verification: Verification, as_json: bool) -> None:
    if as_json:
        repeats = [one.as_json() for one in verification.repeats]
        again = {"salt": verification.salt, "retrained": repeats} if repeats else {}
        print_json({"records": [one.as_json() for one in verification.verdicts], **again})
        return
    out = console()
    out.print(_table(verification.verdicts))
    if verification.repeats:
        out.print(_repeats_table(verification.repeats, verification.salt))
    counts = Counter(one.outcome for one in verification.verdicts)
    out.print(", ".join(f"{counts[outcome]} {outcome}" for outcome in COLOURS if counts[outcome]))


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = listing("Rebuilt from weights", "model", "seed", "accuracy", "params", "bits\nstored", "verdict")
    for verdict in verdicts:
        size = verdict.size
        table.add_row(
            _name(verdict),
            str(verdict.record.seed) if verdict.record else "-",
            _decimal(verdict.metrics.get("accuracy")),
            f"{size['parameters']:,}" if size else "-",
            f"{size['storage_bits']:,}" if size else "-",
            _verdict(verdict.outcome, verdict.reason, verdict.notes),
        )
    return table


def _name(verdict: Verdict) -> str:
    if verdict.record is None:
        return escape(verdict.path.name)
    return _point(verdict.record)


def _point(record: Record) -> str:
    """Name of the architecture, its config and the task, a line each, so that the verdict has room."""
    label = str(record.architecture.get("label") or "")
    lines = [escape(line) for line in (*textwrap.wrap(label, 20), f"on {record.task['name']}")]
    return "\n".join([escape(record.architecture["name"]), *(f"[dim]{line}[/dim]" for line in lines)])


def _verdict(outcome: str, reason: str, notes: Sequence[str]) -> str:
    text = f"[{COLOURS[outcome]}]{outcome}[/]" + (f": {escape(reason)}" if reason else "")
    return "\n".join([text, *(f"[dim]{escape(note)}[/dim]" for note in notes)])


def _repeats_table(repeats: Sequence[Repeat], salt: str) -> Table:
    table = listing(
        f"Trained again, with the salt {escape(salt)}", "model", "seeds", "accuracy", "submitted", "verdict"
    )
    for one in repeats:
        table.add_row(
            _point(one.records[0]),
            "\n".join(map(str, one.seeds)) or "-",
            _decimal(one.means()["found"].get("accuracy")),
            _decimal(one.means()["submitted"].get("accuracy")),
            _verdict(one.outcome, one.reason, [*_elsewhere(one), *one.notes]),
        )
    return table


def _elsewhere(one: Repeat) -> list[str]:
    if one.held_out is None or one.held_out.metrics is None:
        return []
    config = json.loads(one.held_out.point.task_config)
    return [f"{_decimal(one.held_out.metrics.get('accuracy'))} with {label_of(config, config)}"]


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
