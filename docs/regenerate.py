"""Writes again what is generated in docs/: python docs/regenerate.py, or with the name of a page for that page alone.

reproduction.md: each comment `<!-- $ membench ... -->` names a command; the block of text after it is what the command
prints. All of them use the records that come with membench, so that this trains nothing.
api.md: hooks, classes and functions for plugins, from their docstrings, annotations and comments.
bounds.md: the bounds of the built-in plugins, from their declarations.
field.md: each comment `<!-- table NAME -->` names an experiment, or one of the tables below; the table after it is made
from the records that come with membench.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

from membench import api, kernels
from membench.analysis.claims import Beside, number
from membench.analysis.reproduce import Reproduction
from membench.cli import cli
from membench.engine.execution import Execution
from membench.interface import hookspecs
from membench.interface.bound import Bound
from membench.interface.registry import Registry, Selection
from membench.measure.quantize import quantizations_of
from membench.results import Results
from membench.verbs.reproduce import conclude, prepare
from membench_leaderboard.published import PAPER, published_records

DOCS = Path(__file__).parent
PAGE = DOCS / "reproduction.md"
FIGURES = DOCS / "figures"
BLOCK = re.compile(r"(<!-- \$ membench (?P<words>[^\n]*) -->\n```text\n)(?P<output>.*?)(```\n)", re.S)


def output_of(words: str, figures: Path) -> str:
    """What a command prints at a width of 100, but for the names of the files that it wrote."""
    command = [*shlex.split(words), "--figures", str(figures)]
    result = CliRunner(env={"COLUMNS": "100"}).invoke(cli, command, catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(f"membench {words}: {result.output}")
    lines = [line.rstrip() for line in result.stdout.splitlines() if not line.startswith("wrote ")]
    return "\n".join(lines).strip("\n") + "\n"


def reproduction() -> str:
    """The page with all its outputs, and the figures beside it."""
    text = PAGE.read_text("utf-8")
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        text = BLOCK.sub(lambda found: found[1] + output_of(found["words"], Path(folder)) + found[4], text)
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, FIGURES)
    return text


FIELD = DOCS / "field.md"
TABLE = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n\n)(?P<table>(?:\|[^\n]*\n)*\n?)")


def field() -> str:
    """The page on other papers with all its tables."""
    text = FIELD.read_text("utf-8")
    names = [place["name"] for place in TABLE.finditer(text)]
    found = {name: reproduced(name) for name in names if name not in ("papers", "precision")}
    tables = {name: _points(one) for name, one in found.items()}
    tables |= {"papers": _papers(found.values()), "precision": _precision()}
    return TABLE.sub(lambda place: place[1] + tables[place["name"]] + "\n", text)


def reproduced(name: str) -> Reproduction:
    """An experiment from the records that come with membench."""
    registry = Registry(Selection(built_in_only=True))
    (planned,) = prepare(
        registry, [name], protocol=None, quick=False, published=True, seeds=None, overlay=None
    )  # fmt: skip
    return conclude(planned, registry, Execution(), Path(), published=True, show=False)


def _table(*rows: Sequence[str]) -> str:
    head, *rest = (f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in rows)
    return head + "|" + "---|" * len(rows[0]) + "\n" + "".join(rest)


def _papers(found: Iterable[Reproduction]) -> str:
    rows = []
    for one in found:
        experiment, beside = one.experiment, one.beside
        verdict = {True: "holds", False: "does not hold", None: "undecided"}[one.verdict.holds if one.verdict else None]
        if beside:
            near = sum(point.is_near for point in beside)
            first = next((point for point in beside if not point.is_near), beside[0])
            published, ours = f"{first.place}: {number(first.published)}", _ours(first)
            verdict = f"{verdict}; {near} of {len(beside)} points near"
        else:
            assert experiment.claim
            assert one.verdict
            published, ours = experiment.claim.text, one.verdict.reason
        rows.append((
            experiment.source, experiment.question, experiment.setting, published, ours, verdict,
            f"`membench reproduce {experiment.name} --published`",
        ))  # fmt: skip
    return _table(("paper", "question", "setting", "published, for example", "ours", "verdict", "command"), *rows)


def _ours(point: Beside) -> str:
    """What was measured, with the interval of its mean."""
    low, high = (number(end) for end in point.interval)
    which = f", the best of {len(point.values)} seeds; mean {number(point.values.mean())}" if point.best else ""
    return f"{number(point.ours)}{which} ({low} to {high})"


def _points(found: Reproduction) -> str:
    """What was published beside what was measured; where the two have no point in common, only the latter."""
    if not found.beside:
        x, summary = found.experiment.figure.x, found.summary().to_dict("records")
        rows = [
            (f"{row[x]:g}", f"{number(row['mean'])} ({number(row['low'])} to {number(row['high'])})") for row in summary
        ]
        return _table(
            (found.experiment.figure.x_label, f"{found.experiment.figure.y_label}, with a 95 % interval"), *rows
        )
    rows = [
        (one.place, number(one.published), _ours(one), "yes" if one.is_near else "no")
        for one in found.beside
    ]  # fmt: skip
    return _table(("", "published", "ours, with a 95 % interval over seeds", "near"), *rows)


def _precision() -> str:
    """Of the records with rounded weights: what is left of the accuracy and of the bits that it is worth."""
    records = [one for one in published_records(PAPER) if quantizations_of(one.metrics)]
    results = Results(records)
    full = {row["id"]: row for row in results.summary().to_dict("records")}
    rows = []
    for row in sorted(results.quantized(), key=lambda row: -full[row["id"]]["T0"]):
        whole = full[row["id"]]
        interval = f"{row['accuracy']:.4f} ({row['low']:.3f} to {row['high']:.3f})"
        model = row["model"].removesuffix(f" on {row['task']}")
        rows.append((
            model, f"{whole['T0']:,}", f"{whole['accuracy']:.4f}", row["weights"], interval,
            f"{100 * row['kept']:.1f} %",
            f"{row['bits_of_accuracy'] / row['stored_bits']:.3f}",
        ))  # fmt: skip
    head = ("model", "facts", "accuracy", "rounded to", "accuracy then", "bits kept", "bits per stored bit")
    return _table(head, *rows)


API_HEAD = """\
# API for plugins

Written by `python docs/regenerate.py api` from the code. [Plug yours in](plugins.md) shows all of it in use; what
programs call instead is in [From Python](python.md).

A plugin is a module with functions that are marked `@hookimpl`. It imports `membench.api`, from its kernels
`membench.kernels`, and the mathematics in `membench.theory`; all else may change from one release to the next.
"""


def api_page() -> str:
    """Every hook, and every name of membench.api and membench.kernels."""
    hooks = [value for name, value in vars(hookspecs).items() if name.startswith("membench_")]
    parts = [API_HEAD, "## Hooks\n", *map(_callable, hooks)]
    for module in (api, kernels):
        parts.append(f"## `{module.__name__}`\n\n{_prose(module)}\n")
        parts += [_entry(module, name) for name in module.__all__]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


BOUNDS_HEAD = """\
# Bounds

Written by `python docs/regenerate.py bounds` from the code. `membench bounds --model NAME --task NAME` computes them;
[Theory](theory.md) states where they hold and proves what is not proven elsewhere. To add one, see
[Plug yours in](plugins.md#a-bound).

A *guarantee* is reached by some weights, a *limit* is exceeded by none, a *reference* is the figure of another model,
an *order* is known up to a constant, and what is *reported* was measured by others and proven by nobody.
"""


def bounds_page() -> str:
    """Every bound of the built-in plugins, by what it is about."""
    groups: dict[str, list[Bound]] = {}
    for one in sorted(Registry(Selection(built_in_only=True)).bounds, key=lambda one: one.architecture or ""):
        groups.setdefault(f"`{one.architecture}`" if one.architecture else "Every model", []).append(one)
    parts = [BOUNDS_HEAD]
    for about, bounds in groups.items():
        parts.append(f"## {about}\n")
        parts += map(_bound, bounds)
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


CLAIMS = {
    "guarantee": "A guarantee for",
    "limit": "A limit on",
    "reference": "A reference value of",
    "order": "An order of",
    "reported": "A law that was reported, of",
}


def _bound(one: Bound) -> str:
    claim = f"{CLAIMS[one.claim]} {one.quantity.replace('_', ' ')}"
    claim += ", on average over random labels" if one.expected else ""
    claim += f", for {one.restricted_to}" if one.restricted_to else ""
    said = " ".join(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in (one.summary, claim))
    return (
        f"### `{one.name}`\n\n{said}\n\n```text\n{one.formula}\n```\n\n"
        f"{one.reference[:1].upper()}{one.reference[1:].rstrip('.')}.\n"
    )


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, type):
        return _class(name, value)
    if inspect.isfunction(value):
        return _callable(value)
    return f"### `{name}`\n\n{_assigned(module, name)}\n"


def _assigned(module: ModuleType, name: str) -> str:
    """Of what is neither class nor function, a marker or a type: what the code says, and the comment above it."""
    imports = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ImportFrom)]
    (home,) = [node.module for node in imports if name in {alias.name for alias in node.names}]
    source = inspect.getsource(sys.modules[str(home)])
    found = next(node for node in ast.parse(source).body if isinstance(node, ast.Assign) and _names(node) == [name])
    above = source.splitlines()[: found.lineno - 1]
    comments = list(itertools.takewhile(lambda line: line.startswith("# "), reversed(above)))
    said = " ".join(line.removeprefix("# ") for line in reversed(comments))
    return "\n\n".join(filter(None, [f"```python\n{name} = {_plain(ast.unparse(found.value))}\n```", said]))


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _callable(function: Any) -> str:
    return f"### `{function.__name__}`\n\n```python\n{_signature(function)}\n```\n\n{_prose(function)}\n"


def _signature(function: Any) -> str:
    return function.__name__ + re.sub(r"\(self(, )?", "(", _plain(str(inspect.signature(function))))


def _class(name: str, value: type) -> str:
    lines = [f"### `{name}`\n", f"{_prose(value)}\n", *_fields(value)]
    for key, one in vars(value).items():
        if _is_public(key) and (inspect.isfunction(one) or isinstance(one, property)):
            lines.append(_method(one))
    return "\n".join(lines)


def _method(one: Any) -> str:
    function = one.fget if isinstance(one, property) else one
    said = " ".join(_prose(function).split())
    shown = function.__name__ if isinstance(one, property) else _signature(function)
    return f"- `{shown}`" + (f": {said}" if said else "")


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _fields(value: type) -> list[str]:
    """Name, type, default and the comment behind it, of each annotated field in the class's own source."""
    if not (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        return []
    source = textwrap.dedent(inspect.getsource(value))
    lines = source.splitlines()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    known = vars(sys.modules[value.__module__])
    rows = []
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_public(node.target.id):
            comments = lines[(node.end_lineno or node.lineno) - 1].split("  # ")[1:]
            meaning = " ".join(one for one in comments if not one.startswith("type: ignore"))
            kind = _type(node.annotation, known) + _default(node.value)
            rows.append(f"- `{node.target.id}` ({kind})" + (f": {meaning}" if meaning else ""))
    return rows


def _type(node: ast.expr, known: Mapping[str, Any]) -> str:
    """A choice between words is shown as these words."""
    words = typing.get_args(known.get(ast.unparse(node)))
    return "one of " + ", ".join(f"`{word}`" for word in words) if words and isinstance(words[0], str) else _code(node)


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    if isinstance(value, ast.Call):  # field(default_factory=dict)
        return "".join(", by default `{}`" for word in value.keywords if word.arg == "default_factory")
    return f", by default `{ast.unparse(value)}`"


def _code(node: ast.expr) -> str:
    return f"`{_plain(ast.unparse(node))}`"


def _plain(text: str) -> str:
    """Types as a reader would write them: without quotes and without the modules that they lie in."""
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text).replace("'", "")
    return re.sub(r"<\w+\._MISSING_TYPE object at 0x[0-9a-f]+>", "..", text)


def _prose(value: Any) -> str:
    return inspect.getdoc(value) or ""


PAGES = {"reproduction": reproduction, "field": field, "api": api_page, "bounds": bounds_page}


def main() -> None:
    for name in sys.argv[1:] or PAGES:
        (DOCS / f"{name}.md").write_text(PAGES[name](), "utf-8")


if __name__ == "__main__":
    main()
