"""Tables on a terminal of any width: a column may be narrow, but a name is never cut or left out."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from samples import make_record

from membench.commands import bounds as bounds_command
from membench.commands import verify as verify_command
from membench.interface.registry import Registry
from membench.printing import console
from membench.records.store import Entry
from membench.verify.retrain import Repeat
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise
from membench_leaderboard.terminal import boards, score_boards

WIDTHS = [*range(40, 80, 4), *range(80, 201, 10)]
REGISTRY = Registry()
ARCHITECTURES = list(REGISTRY.architectures)
LONG = "A long sentence of why this came out as it did, with nothing in it that could be left out."


def _records() -> list[Any]:
    return [
        make_record(
            id=str(number),
            architecture={"name": name, "config": {"d": number}, "label": f"d={number} d_h=10 H=20 layers=1"},
            metrics={"accuracy": 0.5 + number / 100, "kl": 0.5, "bits": 99.0, "associations": 50.0},
            size={"parameters": 10 ** (number + 1), "without_embeddings": 90, "storage_bits": 32 * 10 ** (number + 1)},
        )
        for number, name in enumerate(ARCHITECTURES)
    ]


def _verdicts() -> list[Verdict]:
    outcomes = (VERIFIED, FAILED, UNCHECKED)
    return [
        Verdict(Path("x.json"), outcomes[number % 3], LONG, Entry(one), one.metrics, one.size, notes=[LONG])
        for number, one in enumerate(_records())
    ]


def _lines(table: Any, width: int) -> list[str]:
    out = console(file=io.StringIO(), width=width)
    for one in table:
        out.print(one)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def _verb(name: str) -> Callable[[int], list[str]]:
    """What a verb prints, at a width."""

    def shown(width: int) -> list[str]:
        from click.testing import CliRunner

        module = importlib.import_module(f"membench.commands.{name}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "load_registry", lambda *given: REGISTRY)
            done = CliRunner().invoke(getattr(module, name), env={"COLUMNS": str(width)})
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    return shown


def _board(make: Any) -> Callable[[int], list[str]]:
    rows = summarise(to_frame(_records()))
    return lambda width: _lines(make(rows, width=width), width)


def _verify(width: int) -> list[str]:
    return _lines([verify_command._table(_verdicts())], width)


def _retrain(width: int) -> list[str]:
    from membench.plan.trial import Point

    repeats = [
        Repeat(Point.of(one.record), (2**32 - 1,) * 3, (one,), FAILED, LONG) for one in _verdicts() if one.record
    ]
    return _lines([verify_command._repeats_table(repeats, "salt")], width)


def _bounds() -> Callable[[int], list[str]]:
    from membench.verbs.bounds import evaluate

    evaluated = evaluate(REGISTRY, "aot", "bigram", (), ("N=5",), seed=0, expensive=False)
    return lambda width: _lines(bounds_command._one(evaluated.points[0], evaluated), width)


TASKS = list(REGISTRY.tasks)
PLUGINS = [plugin.name for plugin in REGISTRY.plugins]
BOUNDS = ["theorem-1", "embedding-assisted-accuracy", "zero-head", "information-capacity"]


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        pytest.param(_board(boards), ARCHITECTURES, id="leaderboard, models"),
        pytest.param(_board(score_boards), ARCHITECTURES, id="leaderboard, architectures"),
        pytest.param(_verify, ARCHITECTURES, id="verify"),
        pytest.param(_retrain, ARCHITECTURES, id="verify --retrain"),
        pytest.param(_verb("models"), ARCHITECTURES, id="models"),
        pytest.param(_verb("tasks"), TASKS, id="tasks"),
        pytest.param(_verb("plugins"), PLUGINS, id="plugins"),
        pytest.param(_bounds(), BOUNDS, id="bounds"),
    ],
)
def test_every_name_is_whole_at_every_width(shown: Callable[[int], list[str]], names: Sequence[str]) -> None:
    for width in WIDTHS:
        lines = shown(width)
        assert max(map(len, lines)) <= width
        words = {word.rstrip("*") for line in lines for word in line.split()[:3]}  # a rank may come before a name
        missing = [name for name in names if name not in words]
        assert not missing, f"{missing} at {width} columns:\n" + "\n".join(lines)
