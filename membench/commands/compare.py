"""`membench compare`: any two sets of records, point by point and seed by seed."""

from __future__ import annotations

from pathlib import Path

import click

from membench.commands.comparison import check_writable, finish, output_options, publish
from membench.errors import UsageError, unknown
from membench.measure.metrics import GATED
from membench.regress.compare import Sample, Watch, samples
from membench.regress.compare import compare as compare_samples


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--watch",
    "watched",
    multiple=True,
    default=("accuracy", "kl"),
    show_default=True,
    metavar="METRIC[=LOSS]",
    help="A metric to compare, and the smallest loss that counts.",
)
@output_options
def compare(
    old: Path,
    new: Path,
    watched: tuple[str, ...],
    strict: bool,
    markdown: Path | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Compare two sets of records; exit code 1 if capacity was lost.

    NEW is compared with OLD. Points are matched by their identity and seeds with seeds.

    \b
    membench compare old-results/ new-results/
    membench compare old-results/ new-results/ --watch accuracy=0.02 --watch bits_per_parameter
    """
    watch = parse_watch(watched)
    check_writable(markdown, junit)
    before, after = _read(old), _read(new)
    if not {one.id for one in before} & {one.id for one in after}:
        raise UsageError(
            f"'{old}' and '{new}' have no point in common: architectures, options, tasks or versions differ"
        )
    found = compare_samples(before, after, lambda sample: watch)
    publish(found, f"{new} against {old}", [], markdown=markdown, junit=junit, as_json=as_json)
    finish(found, strict)


def parse_watch(texts: tuple[str, ...]) -> Watch:
    found: dict[str, float] = {}
    for text in texts:
        name, equals, loss = text.partition("=")
        if name not in GATED:
            raise unknown("metric", name, GATED, f"there are: {', '.join(GATED)}")
        found[name] = _loss(text, loss) if equals else GATED[name]
    return found


def _loss(text: str, loss: str) -> float:
    try:
        value = float(loss)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"--watch {text}: the smallest loss that counts is a number above 0")
    return value


def _read(path: Path) -> list[Sample]:
    from membench_leaderboard.sources import read_entries

    entries, problems = read_entries([path])
    records = [entry.record for entry in entries]
    failed = sum(not record.complete for record in records)
    for problem in [*problems, *([f"left out {failed} failed trials of '{path}'"] if failed else [])]:
        click.echo(f"membench: {problem}", err=True)
    found = samples(records)
    if not found:
        raise UsageError(f"'{path}' has no finished trials; make some with: membench run --model aot --task bigram")
    return found
