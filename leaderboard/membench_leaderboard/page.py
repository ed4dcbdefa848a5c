"""The leaderboard as one HTML file that needs no network: readable without scripts, and more with them.

Everything in a board may come from a stranger's record or plugin, so every text is escaped, and the script in
page.js writes text and never markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from membench_leaderboard.page_tables import (
    COLUMNS,
    SCORES,
    Row,
    rows_table,
    scores_table,
    shown_columns,
    shown_scores,
    title,
)
from membench_leaderboard.table import interval, number

_HOLE = re.compile(r"<!--(\w+)-->")
# What could end the script element early, as JSON itself spells such characters.
_UNSAFE = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}
WORDS = {
    "#": "Rows whose intervals overlap share a rank, and '=' says so.",
    "* Pareto front": "Nothing that is as small is better, and nothing that is as good is smaller.",
    "verified": "The weights were checked against the record; nobody did that for self-reported rows.",
    "not converged": "Training used up its steps while it still gained; with more, the row could improve.",
}


def page(data: Mapping[str, Any]) -> str:
    """The whole board as HTML; `data` is what board_data returns."""
    tables, names = data["tables"], _names(data)
    style, script = _part("page.css"), _part("page.js")
    parts = {
        "policy": _policy(style, script),
        "version": escape(str(data["membench"])),
        "style": style,
        "script": script,
        "facts": _facts(tables, names),
        "tasks": _options(table["task"] for table in tables),
        "protocols": _options(table["protocol"] for table in tables),
        "contents": _contents(tables),
        "boards": "\n".join(_board(at, table, names) for at, table in enumerate(tables)),
        "panels": "\n".join(_panel(at, name, data) for at, name in enumerate(names)),
        "glossary": _glossary(tables),
        "data": json.dumps({**data, "names": names}, separators=(",", ":"), allow_nan=False).translate(_UNSAFE),
    }
    text = _HOLE.sub(lambda hole: parts[hole[1]], _part("page.html"))  # one pass: what is filled in is never read
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON can spell halves of characters, files cannot


def _part(name: str) -> str:
    return (files("membench_leaderboard") / name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """No network and no code but ours: an injected script would not run even if it got into the page."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _names(data: Mapping[str, Any]) -> list[str]:
    """Every architecture with a row, in the order that gives each its look on every plot of the page."""
    return sorted({row["architecture"] for table in data["tables"] for row in table["rows"]})


def _facts(tables: Sequence[Row], names: Sequence[str]) -> str:
    rows = sum(len(table["rows"]) for table in tables)
    counts = {"architecture": len(names), "table": len(tables), "row": rows}
    return ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


def _options(names: Iterable[str]) -> str:
    return "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in dict.fromkeys(names))


def _contents(tables: Sequence[Row]) -> str:
    if len(tables) < 2:
        return ""
    items = "".join(
        f'<li data-table="{at}"><a href="#table-{at}">{escape(table["task"])}, '
        f"{escape(table['protocol'])}</a> <code>{escape(table['task_config'])}</code></li>"
        for at, table in enumerate(tables)
    )
    return f'<nav class="contents" aria-label="Tables"><ul>{items}</ul></nav>'


def _board(at: int, table: Row, names: Sequence[str]) -> str:
    return "\n".join([
        f'<section class="board" id="table-{at}" data-table="{at}" aria-labelledby="table-{at}-name">',
        f'<h2 id="table-{at}-name">{escape(table["task"])} '
        f'<span class="version">v{escape(str(table["task_version"]))}</span></h2>',
        f'<p class="terms"><code>{escape(table["task_config"])}</code>, {_protocol(table)}</p>',
        '<div class="plots" hidden></div>',
        scores_table(at, table, names),
        rows_table(at, table, names),
        f'<p class="note">{escape(table.get("note") or "")}</p>',
        "</section>",
    ])  # fmt: skip


def _protocol(table: Row) -> str:
    options = f" <code>{escape(table['protocol_config'])}</code>" if table["protocol_config"] else ""
    return f"protocol {escape(table['protocol'])} v{escape(str(table['protocol_version']))}{options}"


def _panel(at: int, name: str, data: Mapping[str, Any]) -> str:
    """What an architecture is, its best row on each table, and how to measure that again."""
    about = data["architectures"].get(name, {})
    found = [(place, table, _first(table, name)) for place, table in enumerate(data["tables"])]
    reference = escape(about.get("reference") or "")
    return "\n".join([
        f'<details id="architecture-{at}" data-architecture="{at}">',
        f"<summary><h3>{escape(name)}</h3> <span>{escape(about.get('summary') or '')}</span></summary>",
        f'<p class="reference">{reference}</p>' if reference else "",
        *(_at_best(place, table, row) for place, table, row in found if row),
        "</details>",
    ])  # fmt: skip


def _first(table: Row, name: str) -> Row | None:
    return next((row for row in table["rows"] if row["architecture"] == name), None)


def _at_best(place: int, table: Row, row: Row) -> str:
    items = "".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in _best_facts(row, table["sorted_by"]).items())
    command = row.get("command")
    again = f'<div class="command"><pre><code>{escape(command)}</code></pre></div>' if command else ""
    return (
        f'<div class="best" data-table="{place}"><div><h4>{title(table)}</h4><dl>{items}</dl>{again}</div>'
        '<div class="small" hidden></div></div>'
    )


def _best_facts(row: Row, by: str) -> dict[str, str]:
    facts = {
        "best config": f"<code>{escape(row['config']) or '(no options)'}</code>",
        "accuracy": f"{number(row['accuracy'], '.4f')} ({interval(row, 'accuracy')})",
        "parameters": f"{number(row['parameters'], ',.0f')}, "
        f"{number(row['without_embeddings'], ',.0f')} without embeddings",
        "bits per parameter": number(row["bits_per_parameter"], ".2f"),
    }
    if by == "kl":
        facts["KL"] = f"{number(row['kl'], '.4f')} ({interval(row, 'kl')})"
    if row.get("lower_bound_name"):
        facts["proven accuracy"] = f"{number(row['lower_bound'], '.3f')} ({escape(row['lower_bound_name'])})"
    return facts


def _glossary(tables: Sequence[Row]) -> str:
    used = {one.key for table in tables for one in (*shown_columns(table), *shown_scores(table))}
    columns = {one.key: one for one in (*COLUMNS, *SCORES) if one.key in used}
    items = [(one.key, one.header, one.meaning) for one in columns.values()]
    items += [("", word, meaning) for word, meaning in WORDS.items()]
    return "\n".join(
        f'<div data-key="{key}"><dt>{escape(word)}</dt><dd>{escape(meaning)}</dd></div>' for key, word, meaning in items
    )
