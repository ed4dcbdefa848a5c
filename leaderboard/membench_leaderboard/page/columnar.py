"""The board as page.js reads it: rows as columns, and what repeats said once.

`unpacked` and `command` in page.js are the other side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from membench.measure.size import COUNTS

Row = Mapping[str, Any]
OPTION = re.compile(r"(?<= -M )([^\s=]+)=(\S+)(?= |$)")
SHAPE = (
    "config",
    *(count.field for count in COUNTS.values()),
    "storage_bits",
    "active",
    "state",
    "flops",
    "code_bytes",
)
NAME = re.compile(r"(?<= -M )([^\s=]+)(?= |$)")


TOLD = ("score", "low", "high")  # of a task of a track, beside its models


def columnar(data: Row) -> dict[str, Any]:
    """The same board without what only the templates need; the models of all tracks are one table."""
    models: list[Row] = []
    tracks = [{**_without(track, "note", "meaning", "rows"), "told": packed(list(_told(track, models)))}
              for track in data["tracks"]]  # fmt: skip
    tables = [
        {**_without(table, "note", "score_note"), "rows": packed(table["rows"]),
         "scores": packed([_brief_score(row, table["sorted_by"]) for row in table["scores"]])}
        for table in data["tables"]
    ]  # fmt: skip
    return {**_without(data, "architectures"), "tracks": tracks, "models": packed(models), "tables": tables}


def _without(row: Row, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


def _told(track: Row, models: list[Row]) -> Iterator[Row]:
    """Each score of a track; its models are those from `first` to `end`, exclusive, in the table of all."""
    for row in track["rows"]:
        for task, told in row["tasks"].items():
            if told:
                first = len(models)
                models += [cell for cell in told["sizes"] if cell]
                who = {"architecture": row["architecture"], "published": row["published"], "task": task}
                yield {**who, **{key: told[key] for key in TOLD}, "first": first, "end": len(models)}


def _brief_score(row: Row, by: str) -> Row:
    """With what its table is sorted by in place of the best model of a budget: the page sorts, and Python wrote it."""
    best = {f"budget {budget} {count}": one and one[by]
            for budget, counts in row["budgets"].items() for count, one in counts.items()}  # fmt: skip
    return {**_without(row, "budgets"), **best}


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows as columns: each a list of values, or, where that is shorter, the different values and which one each is.

    What follows from the shape of a model is a table of its own, because the same shapes are asked again and again.
    """
    texts = [
        {**row, "command": shortened(row["command"], row["config"])} if row.get("command") else row for row in rows
    ]
    shapes = [tuple(row.get(key) for key in SHAPE) for row in rows]
    different = {shape: place for place, shape in enumerate(dict.fromkeys(shapes))}
    if len(different) == len(rows):
        return _columns(texts)
    of = _columns([dict(zip(SHAPE, shape, strict=True)) for shape in different])
    return {
        **_columns([_without(row, *SHAPE) for row in texts]),
        "shape": {"of": of, "at": [different[one] for one in shapes]},
    }


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    columns = {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
    known = {key: some for key, some in columns.items() if any(one is not None for one in some)}
    return {"count": len(rows), "columns": {key: _shortest(some) for key, some in known.items()}}


def _shortest(values: list[Any]) -> Any:
    texts = [_text(value) for value in values]
    different = list(dict.fromkeys(texts))
    if len(different) == 1:
        return {"of": values[:1]}
    places = {text: place for place, text in enumerate(different)}
    listed = {"of": [json.loads(text) for text in different], "at": [places[text] for text in texts]}
    return min(listed, values, key=lambda one: len(_text(one)))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def shortened(command: str, config: str) -> str:
    """A command without the values of options that the config has too: `-M d=3` is `-M d` where it says `d=3`.

    So models of one architecture have the same text.
    """
    words = set(config.split())
    text = OPTION.sub(lambda found: found[1] if found[0] in words else found[0], command)
    return text if whole(text, config) == command else command  # a config may say an option twice


def whole(text: str, config: str) -> str:
    """The command again, as page.js does it."""
    values = dict(word.split("=", 1) for word in config.split() if "=" in word)
    return NAME.sub(lambda found: f"{found[1]}={values[found[1]]}" if found[1] in values else found[1], text)
