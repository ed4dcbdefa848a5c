"""Comparisons as a table, Markdown, JSON and JUnit XML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from rich.markup import escape
from rich.table import Table

from membench.analysis.escape_markdown import escape as escape_markdown
from membench.regress.compare import (
    IDENTICAL,
    IMPROVED,
    LOST,
    NOT_COMPARABLE,
    TOO_FEW,
    VERDICTS,
    CapacityLost,
    Comparison,
    Comparisons,
)
from membench.regress.exact_tests import LEVEL

COLOURS = {LOST: "bold red", IMPROVED: "green", NOT_COMPARABLE: "yellow", TOO_FEW: "yellow"}
NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sentence(row: Comparison) -> str:
    return f"{_whole(row)}: {row.metric} from {_decimal(row.old)} to {_decimal(row.new)} (p = {_p(row)})"


def fail_if_lost(comparisons: Comparisons, strict: bool) -> str:
    """CapacityLost when something was lost, or with `strict` when nothing could be said of something.

    Otherwise a warning for what nothing could be said of, or nothing.
    """
    lost, unsaid = comparisons.of(LOST), comparisons.of(NOT_COMPARABLE, TOO_FEW)
    if lost:
        raise CapacityLost("\n".join(f"capacity was lost: {sentence(row)}" for row in lost))
    words = f"nothing can be said of {len(unsaid)} of {len(comparisons.rows)} comparisons"
    if unsaid and strict:
        raise CapacityLost(f"--strict: {words}")
    return f"warning: {words}; --strict makes this a failure" if unsaid else ""


def summary(comparisons: Comparisons) -> list[str]:
    if not comparisons.rows:
        return []
    counts = ", ".join(f"{count} {verdict}" for verdict, count in comparisons.counts().items())
    rule = f"A loss fails if it exceeds what counts as one and p < {LEVEL:g}"
    family = f"the {comparisons.family} of {len(comparisons.rows)} comparisons that could fail"
    return [f"{counts}. {rule}, corrected for {family}."]


def as_table(comparisons: Comparisons, heading: str) -> Table:
    """The comparisons, but for identical ones, in a table that fits 80 columns."""
    table = Table(title=escape(heading), title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.padding = (0, 2, 0, 0)
    table.add_column("what", overflow="fold", ratio=1, min_width=18)
    table.add_column("from", justify="right", no_wrap=True)
    table.add_column("to", justify="right", no_wrap=True)
    table.add_column("gain\n95 % interval", justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", min_width=18)
    names = Counter((row.title, row.metric) for row in comparisons.rows)
    for row in changed(comparisons):
        table.add_row(*_cells(row, whole=row.verdict == LOST or names[row.title, row.metric] > 1))
    return table


def changed(comparisons: Comparisons) -> list[Comparison]:
    return [row for row in comparisons.rows if row.verdict != IDENTICAL]


def _cells(row: Comparison, whole: bool) -> list[str]:
    """A row; its options too if `whole`, for what is lost and where a name alone would stand for several points."""
    verdict = f"[{COLOURS.get(row.verdict, 'none')}]{_verdict(row)}[/]"
    options = "; ".join(filter(None, (row.config, row.task.partition(" ")[2], row.protocol)))
    what = f"{escape(row.title)}\n{escape(row.metric)}" + (f"\n[dim]{escape(options)}[/dim]" if whole else "")
    gain = f"{_signed(row.gain)}\n[dim]{_interval(row)}[/dim]"
    return [what, _decimal(row.old), _decimal(row.new), gain, _p(row), f"{verdict}\n[dim]{escape(row.why)}[/dim]"]


def _whole(row: Comparison) -> str:
    """All that identifies a point, in a line."""
    options = f" ({row.config})" if row.config else ""
    return f"{row.architecture}{options} on {row.task}, {row.protocol}"


def _verdict(row: Comparison) -> str:
    return row.verdict.upper() if row.verdict == LOST else row.verdict


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"


def _interval(row: Comparison) -> str:
    return "" if row.low is None or row.high is None else f"{row.low:+.3f} {row.high:+.3f}"


def _p(row: Comparison) -> str:
    return "-" if row.p is None else f"{row.p:.4f}" if row.p >= 0.0001 else "<0.0001"


def as_markdown(comparisons: Comparisons, heading: str, notes: Sequence[str]) -> str:
    """What matters as a table; the rest folded away, so that a pull request stays readable."""
    shown = [row for row in comparisons.rows if row.verdict in VERDICTS[:4]]
    rest = [row for row in comparisons.rows if row not in shown]
    outcome = ": capacity was lost" if comparisons.of(LOST) else ": no loss of capacity" if comparisons.rows else ""
    parts = [
        f"### {escape_markdown(heading)}{outcome}",
        *summary(comparisons),
        *(escape_markdown(note) for note in notes),
    ]
    if shown:
        parts.append(_markdown_table(shown))
    if rest:
        words = f"{len(rest)} comparisons within noise or identical"
        parts.append(f"<details><summary>{words}</summary>\n\n{_markdown_table(rest)}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: Sequence[Comparison]) -> str:
    lines = [
        "| what | metric | from | to | gain | 95 % interval | p | verdict | |",
        "|---|---|--:|--:|--:|---|--:|---|---|",
    ]
    for row in rows:
        what, metric, why = (escape_markdown(text) for text in (_whole(row), row.metric, row.why))
        verdict = f"**{row.verdict}**" if row.verdict in VERDICTS[:4] else row.verdict
        numbers = (_decimal(row.old), _decimal(row.new), _signed(row.gain), _interval(row), _p(row))
        lines.append(f"| {what} | {metric} | {' | '.join(numbers)} | {verdict} | {why} |")
    return "\n".join(lines)


def as_plain(comparisons: Comparisons, heading: str, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "heading": heading,
        "lost": bool(comparisons.of(LOST)),
        "counts": comparisons.counts(),
        "could_fail": comparisons.family,
        "level": LEVEL,
        "notes": list(notes),
        "comparisons": [asdict(row) for row in comparisons.rows],
    }


def as_junit(comparisons: Comparisons, heading: str) -> str:
    """A test case for each comparison; where nothing can be said, it is skipped."""
    skipped = comparisons.of(NOT_COMPARABLE, TOO_FEW)
    suite = ElementTree.Element("testsuite", name=_xml(heading), tests=str(len(comparisons.rows)), errors="0",
                                failures=str(len(comparisons.of(LOST))), skipped=str(len(skipped)))  # fmt: skip
    for row in comparisons.rows:
        name = f"{_whole(row)}: {row.metric}"
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"membench.{_xml(row.architecture)}", name=_xml(name)
        )
        if row.verdict == LOST:
            ElementTree.SubElement(case, "failure", message=_xml(sentence(row))).text = _xml(row.why)
        elif row in skipped:
            ElementTree.SubElement(case, "skipped", message=_xml(f"{row.verdict}: {row.why}"))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(f"{row.verdict}: {row.why}")
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return NO_XML.sub("?", text)
